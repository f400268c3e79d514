# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Watches: a response that never ends, one JSON event a line.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

import msgspec
from aiohttp import web

from cluster_lab.apiserver.listing import selection_of
from cluster_lab.apiserver.requests import RequestInfo, is_true
from cluster_lab.apiserver.selectors import Selection
from cluster_lab.apiserver.status import expired
from cluster_lab.apiserver.store import Change, ChangeType, Follower, Record, Store

_DEFAULT_TIMEOUT = 1800.0
"""Seconds of a watch that names none, or 0; a real server takes a random number from this to twice this."""
_LAST_BOOKMARK_BEFORE_END = 2.0
"""Seconds; a client that reconnects after a timeout then does so from a recent version."""


class WatchStream:
    """One watch, from its first byte to its last.

    :param bookmark_interval: seconds between bookmarks, for a client that allows them.
    :raises ApiError: 400 for a bad selector, before the stream has begun.
    """

    def __init__(self, store: Store, info: RequestInfo, bookmark_interval: float) -> None:
        self.info = info
        self._store = store
        self._selection: Selection = selection_of(info)
        self._version = int(info.query.get("resourceVersion") or 0)
        self._timeout = float(info.query.get("timeoutSeconds") or 0) or _DEFAULT_TIMEOUT
        wants_bookmarks = is_true(info.query.get("allowWatchBookmarks"))
        self._bookmark_interval = bookmark_interval if wants_bookmarks else None
        self._response = web.StreamResponse(headers={"Content-Type": "application/json"})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Send events until the time is up or the client leaves."""
        with self._store.followed(self._version or self._store.revision) as follower:
            initial = [] if self._version else self._existing()
            too_old = 0 < self._version < self._store.oldest
            try:
                await self._response.prepare(request)
                if too_old:
                    await self._send([self._expiry()])
                else:
                    await self._send(self._line("ADDED", record) for record in initial)
                    await self._follow(follower)
            except ConnectionError:
                if request.transport is not None:  # without the last chunk that ends a response
                    request.transport.abort()
        return self._response

    def _existing(self) -> list[Record]:
        found = [r for r in self._store.records(self.info.target) if self._selection.matches(r)]
        return sorted(found, key=lambda record: record.key)

    def _expiry(self) -> bytes:
        status = expired(f"too old resource version: {self._version} ({self._store.oldest})").status()
        return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"

    async def _follow(self, follower: Follower) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            bookmark_at = self._next_bookmark(loop.time(), deadline)
            until = deadline if bookmark_at is None else bookmark_at
            await self._relay(follower, until)
            # A bookmark promises that everything up to its version has been sent, so that goes first.
            last = [] if until == deadline else [self._bookmark()]
            await self._send([*self._pending(follower), *last])
            if until == deadline:
                return

    async def _relay(self, follower: Follower, until: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while True:
                    await self._send(self._pending(follower))
                    await follower.wake.wait()

    def _pending(self, follower: Follower) -> list[bytes]:
        return [line for change in follower.take() for line in self._lines(change)]

    def _next_bookmark(self, now: float, deadline: float) -> float | None:
        if self._bookmark_interval is None:
            return None
        at = min(now + self._bookmark_interval, deadline - _LAST_BOOKMARK_BEFORE_END)
        return at if at > now else None

    def _bookmark(self) -> bytes:
        metadata = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        head = self.info.target.type_prefix + msgspec.json.encode({"metadata": metadata})[1:]
        return b'{"type":"BOOKMARK","object":' + head + b"}\n"

    def _lines(self, change: Change) -> Iterable[bytes]:
        """An object that stops or starts to match is, to this watch, deleted or added."""
        if change.record.resource is not self.info.target:
            return
        before = change.previous is not None and self._selection.matches(change.previous)
        after = change.type != "DELETED" and self._selection.matches(change.record)
        if after:
            yield self._line("MODIFIED" if before else "ADDED", change.record)
        elif before:
            yield self._line("DELETED", change.record if change.type == "DELETED" else change.departed)

    def _line(self, kind: ChangeType, record: Record) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), record.json)

    async def _send(self, lines: Iterable[bytes]) -> None:
        if data := b"".join(lines):
            await self._response.write(data)
