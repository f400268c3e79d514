# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Watches on their way through the proxy: counted, cut, late.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from math import inf

import aiohttp
from aiohttp import web

from cluster_lab.api_proxy.upstream import begin


class Watches:
    """All watches that go through the proxy. To be used on its event loop."""

    def __init__(self) -> None:
        self.opened = 0
        self.open: set[_Relay] = set()
        self.lag = 0.0
        """Seconds that an event has to be old."""

    def cut(self) -> None:
        """Break the connections of the watches that are open."""
        for watch in tuple(self.open):
            watch.cut()

    def freeze(self) -> None:
        """Pass nothing on from the watches that are open."""
        for watch in self.open:
            watch.lag = inf

    def set_lag(self, seconds: float) -> None:
        """Pass events on when they are so old, those too that wait already."""
        self.lag = seconds
        for watch in self.open:
            watch.lag = seconds
            watch.awake.set()

    async def relay(self, request: web.Request, reply: aiohttp.ClientResponse) -> web.StreamResponse:
        """Pass a watch on until it ends.

        :raises aiohttp.ClientError: the server breaks it off.
        """
        watch = _Relay(request.transport, self.lag)
        # First, so that the client cannot know of a watch that is not counted and cannot be cut.
        self.open.add(watch)
        self.opened += 1
        try:
            response = await begin(request, reply)
            await watch.run(reply, response)
        finally:
            self.open.remove(watch)
        return response


class _Relay:
    """One watch. Its end travels with the events: as late as they are, and after them."""

    def __init__(self, transport: asyncio.Transport | None, lag: float) -> None:
        self.lag = lag
        self.awake = asyncio.Event()
        """Set to have it look again at what is due."""
        self._transport = transport
        self._queue: deque[tuple[float, bytes | None]] = deque()
        self._clock = asyncio.get_running_loop().time

    def cut(self) -> None:
        """Break the client's connection; the one to the server follows."""
        if self._transport is not None:
            self._transport.abort()

    async def run(self, reply: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        reading = asyncio.create_task(self._read(reply))
        try:
            await self._write(response)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reply: aiohttp.ClientResponse) -> None:
        try:
            async for line in reply.content:
                self._put(line)
        finally:
            self._put(None)

    def _put(self, line: bytes | None) -> None:
        self._queue.append((self._clock(), line))
        self.awake.set()

    async def _write(self, response: web.StreamResponse) -> None:
        while True:
            self.awake.clear()
            lines = self._take_due()
            if data := b"".join(line for line in lines if line):
                await response.write(data)
            if None in lines:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_due()):
                    await self.awake.wait()

    def _take_due(self) -> list[bytes | None]:
        before = self._clock() - self.lag
        lines = []
        while self._queue and self._queue[0][0] <= before:
            lines.append(self._queue.popleft()[1])
        return lines

    def _next_due(self) -> float | None:
        return self._queue[0][0] + self.lag if self._queue else None
