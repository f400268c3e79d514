# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The end of a server whose block has failed; that of others is tested with the API server."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from aiohttp import web

from cluster_lab.http_server import listening


class BlockError(Exception):
    """What a block has failed with."""


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_comes_as_the_block_fails_is_closed(turns: int) -> None:
    runner = web.AppRunner(web.Application(), access_log=None)
    with socket.socket() as client:
        with contextlib.suppress(BlockError):
            async with listening(runner, "127.0.0.1") as port:
                client.connect(("127.0.0.1", port))
                for _ in range(turns):
                    await asyncio.sleep(0)
                raise BlockError
        client.settimeout(0)
        await asyncio.sleep(0)
        # One that was not accepted at all is reset.
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
