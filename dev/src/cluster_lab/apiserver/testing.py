# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server for tests that have no event loop of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster_lab.apiserver.server import ApiServer
from cluster_lab.loop_thread import entered_on_loop


@contextmanager
def running_server(**options: Any) -> Iterator[ApiServer]:
    """Run a server on an event loop in a thread.

    :param options: arguments of :class:`ApiServer`.
    """
    with entered_on_loop("embedded-apiserver", lambda: ApiServer(**options)) as (_, server):
        yield server
