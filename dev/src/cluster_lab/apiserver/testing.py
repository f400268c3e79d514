# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server for tests that have no event loop of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster_lab.apiserver.server import ApiServer
from cluster_lab.loop_thread import running_loop

_START_TIMEOUT = 10.0


@contextmanager
def running_server(**options: Any) -> Iterator[ApiServer]:
    """Run a server on an event loop in a thread; its ``faults`` may be used from the caller's thread.

    :param options: arguments of :class:`ApiServer`.
    """
    with running_loop("embedded-apiserver") as loop:
        server = asyncio.run_coroutine_threadsafe(_started(options), loop).result(_START_TIMEOUT)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(_START_TIMEOUT)


async def _started(options: dict[str, Any]) -> ApiServer:
    server = ApiServer(**options)
    await server.start()
    return server
