# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What single requests meet: they are refused, late, or held until a test lets them go on; replies get lost.

The methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

from anyio.from_thread import BlockingPortal

from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.status import ApiError

Predicate = Callable[[RequestInfo], bool]

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def any_request(_: RequestInfo) -> bool:
    """:returns: True, whatever the request is."""
    return True


@dataclass
class Fault:
    """What happens to some requests."""

    when: Predicate
    times: int | None
    """How many requests it is still for; None: all, until it is cleared."""
    error: ApiError | None = None
    delay: float = 0.0
    reply_delay: float = 0.0
    reply_lost: bool = False


NO_FAULT = Fault(any_request, 0)


class RequestFaults:
    """Fault injection into requests. Each request meets at most one fault, the oldest that fits it."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        # A predicate may add faults itself.
        self._lock = threading.RLock()

    def fail(
        self,
        status: int,
        *,
        times: int | None = 1,
        when: Predicate = any_request,
        retry_after: int | None = None,
        page: str | None = None,
    ) -> None:
        """Refuse requests without applying them.

        :param status: HTTP status, such as 429, 500 or 503.
        :param times: how many requests; None: until :meth:`clear`.
        :param when: which requests.
        :param retry_after: seconds for a Retry-After header.
        :param page: what a proxy between client and API server says in place of a Status object.
        """
        reason = _REASONS.get(status, "Unknown")
        error = ApiError(status, reason, "injected fault", retry_after=retry_after, page=page)
        self._add(Fault(when, times, error=error))

    def delay(
        self, seconds: float, *, times: int | None = 1, when: Predicate = any_request, reply: bool = False
    ) -> None:
        """Hold requests up.

        :param times: how many requests; None: until :meth:`clear`.
        :param reply: whether the request is applied at once and only its reply is late; if not, a client that
            gives up first prevents the request.
        """
        self._add(Fault(when, times, reply_delay=seconds) if reply else Fault(when, times, delay=seconds))

    def lose_reply(self, *, times: int | None = 1, when: Predicate = any_request) -> None:
        """Apply requests and then break their connection: the client cannot know that it happened.

        :param times: how many requests; None: until :meth:`clear`.
        """
        self._add(Fault(when, times, reply_lost=True))

    def clear(self) -> None:
        """Forget all faults; a request that has met one already is not spared the rest of it."""
        with self._lock:
            self._faults.clear()

    def take(self, info: RequestInfo) -> Fault:
        """:returns: the fault for a request, used up by one."""
        with self._lock:
            for fault in tuple(self._faults):
                if fault.when(info):
                    self._use_up(fault)
                    return fault
        return NO_FAULT

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _use_up(self, fault: Fault) -> None:
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)


class DroppedError(ConnectionAbortedError):
    """The test has decided that this request, or its reply, gets lost."""


class Hold:
    """Holds the requests that fit, or the replies to them. Made by :meth:`.ApiProxy.hold`."""

    def __init__(self, portal: BlockingPortal, when: Predicate, *, reply: bool) -> None:
        self.when = when
        self.reply = reply
        self._portal = portal
        self._over = False
        self._changed = threading.Condition()
        self._held: dict[asyncio.Future[bool], RequestInfo] = {}

    def wait_for(self, count: int, timeout: float) -> None:
        """Wait until so many requests are held at the same time.

        :param timeout: seconds.
        :raises AssertionError: fewer are.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._held) >= count, timeout):
                held = [f"{info.method} {info.path}" for info in self._held.values()]
                raise AssertionError(f"{len(held)} requests are held after {timeout} s, not {count}: {held}")

    def drop(self) -> None:
        """Break the connections of those that are held, which are never forwarded if ``reply`` is False.

        Later ones that fit are held, until the block ends.
        """
        self._portal.call(self._decide, False)

    def end(self) -> None:
        """Let those that are held go on, and do not hold others."""

        def run() -> None:
            self._over = True
            self._decide(True)

        self._portal.call(run)

    async def stop(self, info: RequestInfo) -> None:
        """Wait for the decision on a request that fits.

        :raises DroppedError: it does not go on.
        """
        if self._over:
            return
        goes_on: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._held[goes_on] = info
            self._changed.notify_all()
        try:
            if not await goes_on:
                raise DroppedError
        finally:
            with self._changed:
                self._held.pop(goes_on, None)

    def _decide(self, goes_on: bool) -> None:
        with self._changed:
            for decision in self._held:
                # Cancelled: its client has gone away just now.
                if not decision.done():
                    decision.set_result(goes_on)
            self._held.clear()
