# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The way of an executor to the API server: counts the bytes, and can cut the connections.

It passes on what it does not look into (TLS), so that it costs next to nothing and says nothing of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from cluster_lab.kubeconfig import Kubeconfig
from cluster_lab.loop_thread import run_on, running_loop
from cluster_lab.ports import LOOPBACK

_CHUNK = 256 * 1024
_BACKLOG = 1024
_START_TIMEOUT = 10.0


class Relay:
    """A TCP relay on loopback; made by :func:`open_relay`."""

    def __init__(self, kubeconfig: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.received = 0
        """Bytes that the server has sent."""
        self.sent = 0
        """Bytes that the executor has sent."""
        self.connections = 0
        """How many have been opened so far."""
        self.port = 0
        self._kubeconfig = kubeconfig.read_text()
        self._server = urlsplit(Kubeconfig(kubeconfig).url)
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = loop

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig of the server behind, with the relay's port."""
        behind = f"{self._server.hostname}:{self._server.port}"
        path.touch(mode=0o600)
        path.write_text(self._kubeconfig.replace(behind, f"{LOOPBACK}:{self.port}"))

    @property
    def bytes(self) -> int:
        """All that was passed on so far, in both directions."""
        return self.received + self.sent

    async def start(self) -> asyncio.Server:
        """Begin to listen."""
        server = await asyncio.start_server(self._serve, LOOPBACK, 0, backlog=_BACKLOG)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cut(self) -> None:
        """Break all connections."""
        run_on(self._loop, self._abort)

    def _abort(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            answers, requests = await asyncio.open_connection(
                self._server.hostname, self._server.port, limit=_CHUNK
            )
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, requests}
        try:
            await asyncio.gather(
                self._pass_on(reader, requests, "sent"), self._pass_on(answers, writer, "received")
            )
        finally:
            self._open -= {writer, requests}
            writer.transport.abort()
            requests.transport.abort()

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, direction: str
    ) -> None:
        try:
            while data := await source.read(_CHUNK):
                setattr(self, direction, getattr(self, direction) + len(data))
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.transport.abort() if source.exception() else target.close()


@contextmanager
def open_relay(kubeconfig: Path) -> Iterator[Relay]:
    """Run a relay to the server of a kubeconfig."""
    with running_loop("relay") as loop:
        relay = Relay(kubeconfig, loop)
        server = asyncio.run_coroutine_threadsafe(relay.start(), loop).result(_START_TIMEOUT)
        try:
            yield relay
        finally:
            relay.cut()
            run_on(loop, server.close)
            asyncio.run_coroutine_threadsafe(_settle(), loop).result(_START_TIMEOUT)


async def _settle() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
