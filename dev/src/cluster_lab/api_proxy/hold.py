# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Requests that wait until a test lets them go on, or makes sure that they never do."""

from __future__ import annotations

import asyncio
import threading

from anyio.from_thread import BlockingPortal

from cluster_lab.api_proxy.request_faults import Predicate
from cluster_lab.apiserver.requests import RequestInfo


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
