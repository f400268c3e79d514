# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An HTTP server of aiohttp's that leaves no connection open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

_TURNS_UNTIL_KNOWN = 3
"""Turns of the loop until a connection that was accepted is known to the server, and one to spare."""


@contextlib.asynccontextmanager
async def listening(
    runner: web.BaseRunner,
    host: str,
    port: int = 0,
    *,
    backlog: int = 128,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """
    Serve for as long as the block lasts, and yield the port.

    Connections that come as it ends are closed too. With a ``TCPSite`` they would stay open: asyncio loses
    those that it has accepted, but has made no transport for, when its server closes, and aiohttp's clean-up
    knows of those only that have been reported to it. Hence nothing more is accepted first, and what was is
    waited for. A TLS connection is reported when its handshake is over: one that has not come so far stays
    open.

    :param port: 0 takes a free one
    :raises OSError: the address cannot be used
    """
    with socket.create_server((host, port), backlog=backlog) as listener:
        await runner.setup()
        try:
            await web.SockSite(runner, listener, backlog=backlog, ssl_context=ssl_context).start()
            yield listener.getsockname()[1]
        finally:
            asyncio.get_running_loop().remove_reader(listener)
            for _ in range(_TURNS_UNTIL_KNOWN):
                await asyncio.sleep(0)
            await runner.cleanup()
