# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Faults on demand, for tests: refused, delayed and lost requests, cut and silent watches, compaction.

The methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.status import ApiError
from cluster_lab.apiserver.store import Store
from cluster_lab.apiserver.watch import WatchStream

Predicate = Callable[[RequestInfo], bool]

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def _any(_: RequestInfo) -> bool:
    return True


@dataclass
class Fault:
    """What happens to some requests."""

    when: Predicate
    times: int
    error: ApiError | None = None
    delay: float = 0.0
    reply_delay: float = 0.0
    reply_lost: bool = False


NO_FAULT = Fault(_any, 0)


class Faults:
    """Fault injection into one server. Each request meets at most one fault, the oldest that fits it."""

    def __init__(self, store: Store, streams: set[WatchStream]) -> None:
        self._store = store
        self._streams = streams
        self._faults: list[Fault] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def fail(
        self,
        status: int,
        *,
        times: int = 1,
        when: Predicate = _any,
        retry_after: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Refuse requests without applying them.

        :param status: HTTP status, such as 429, 500 or 503.
        :param times: how many requests.
        :param when: which requests.
        :param retry_after: seconds for a Retry-After header.
        :param reason: of the Status object, if not the usual one for the status.
        """
        reason = reason or _REASONS.get(status, "Unknown")
        error = ApiError(status, reason, "injected fault", retry_after=retry_after)
        self._faults.append(Fault(when, times, error=error))

    def delay(self, seconds: float, *, times: int = 1, when: Predicate = _any, reply: bool = False) -> None:
        """Hold requests up.

        :param reply: whether the request is applied at once and only its reply is late; if not, a client that
            gives up first prevents the request.
        """
        self._faults.append(
            Fault(when, times, reply_delay=seconds) if reply else Fault(when, times, delay=seconds)
        )

    def lose_reply(self, *, times: int = 1, when: Predicate = _any) -> None:
        """Apply requests and then break their connection: the client cannot know that it happened."""
        self._faults.append(Fault(when, times, reply_lost=True))

    def clear(self) -> None:
        """Forget the faults that no request has met."""
        self._faults.clear()

    def cut_watches(self, when: Predicate = _any) -> None:
        """Break the connections of the watches that are open."""
        self._each_stream(WatchStream.cut, when)

    def freeze_watches(self, when: Predicate = _any) -> None:
        """Make the open watches silent, without closing them. Watches opened later are not affected."""
        self._each_stream(WatchStream.freeze, when)

    def thaw_watches(self, when: Predicate = _any) -> None:
        """Let frozen watches go on."""
        self._each_stream(WatchStream.thaw, when)

    def compact(self) -> None:
        """Expire every older resource version and continue token."""
        self._on_loop(self._store.compact)

    def open_watches(self, when: Predicate = _any) -> int:
        """:returns: how many watches are open."""
        return len([stream for stream in tuple(self._streams) if when(stream.info)])

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell on which loop the server runs."""
        self._loop = loop

    def take(self, info: RequestInfo) -> Fault:
        """:returns: the fault for a request, used up by one."""
        for fault in tuple(self._faults):
            if fault.times > 0 and fault.when(info):
                fault.times -= 1
                return fault
        return NO_FAULT

    def _each_stream(self, act: Callable[[WatchStream], None], when: Predicate) -> None:
        def run() -> None:
            for stream in tuple(self._streams):
                if when(stream.info):
                    act(stream)

        self._on_loop(run)

    def _on_loop(self, act: Callable[[], None]) -> None:
        """Run on the server's loop and return when it is done, so that a test can rely on it."""
        if self._loop is None:
            raise RuntimeError("the server is not running")
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            act()
        else:
            asyncio.run_coroutine_threadsafe(_call(act), self._loop).result()


async def _call(act: Callable[[], None]) -> None:
    act()
