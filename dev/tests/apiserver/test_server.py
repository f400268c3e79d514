# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server's end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

import pytest

from cluster_lab.apiserver import ApiServer


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_as_the_server_stops_is_closed(turns: int) -> None:
    """However many turns of the loop it is ahead: from not accepted yet to a request that could come."""
    with socket.socket() as client:
        async with ApiServer(run_controllers=False) as server:
            client.connect(("127.0.0.1", urlsplit(server.url).port))
            for _ in range(turns):
                await asyncio.sleep(0)
        client.settimeout(0)
        await asyncio.sleep(0)
        # One that was not accepted at all is reset.
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
