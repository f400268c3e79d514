# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Carries out what was planned to go wrong, in a thread of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from signal import SIGKILL
from threading import Event
from types import TracebackType
from typing import Self

from soak.disturbances import SCHEDULER_EVENTS, Disturbance, Planned
from stage.schedulers import Scheduler
from stage.stage import Stage

OUTAGE = 12.0
"""Seconds for which the API server is away, at most."""

BURST = 40
"""Requests that are refused, or whose replies are lost, at most."""

REPEATING = 5.0
"""Seconds for which watch events are repeated."""


def possible_on(stage: Stage) -> list[Disturbance]:
    """Return what can go wrong on a stage, beside its second scheduler."""
    without = {*SCHEDULER_EVENTS} | (set() if stage.control_plane else {Disturbance.API_SERVER_KILLED})
    return [kind for kind in Disturbance if kind not in without]


class Saboteur:
    """
    Does what is planned, one thing after the other, from entering the ``with`` block to its end.

    :param planned: in the order of time, which counts from the beginning of the block
    """

    def __init__(self, stage: Stage, planned: Sequence[Planned]) -> None:
        self.done: Counter[Disturbance] = Counter()
        self._stage = stage
        self._planned = planned
        self._over = Event()
        self._second: Scheduler | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saboteur")

    def __enter__(self) -> Self:
        self._work = self._thread.submit(self._carry_out)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Leave nothing disturbed behind.

        :raises Exception: what went wrong that was not planned, unless the block itself has failed
        """
        self._over.set()
        self._thread.shutdown()
        self._stage.proxy.faults.clear()
        self._stage.proxy.replay(0)
        if self._second:
            self._second.end(SIGKILL)
        if error is None:
            self._work.result()

    def _carry_out(self) -> None:
        start = time.monotonic()
        for planned in self._planned:
            if self._over.wait(max(0.0, start + planned.at - time.monotonic())):
                return
            self._disturb(planned)
            self.done[planned.kind] += 1

    def _disturb(self, planned: Planned) -> None:
        proxy, some = self._stage.proxy, 1 + int(planned.extent * BURST)
        match planned.kind:
            case Disturbance.WATCHES_CUT:
                proxy.cut_watches()
            case Disturbance.WATCH_EXPIRED:
                # Asked for again, the watch has expired.
                proxy.expire_watches()
                proxy.cut_watches()
            case Disturbance.EVENTS_REPEATED:
                proxy.replay(1)
                self._over.wait(REPEATING)
                proxy.replay(0)
            case Disturbance.TOO_MANY_REQUESTS:
                proxy.faults.fail(429, times=some, retry_after=1)
            case Disturbance.REPLIES_LOST:
                proxy.faults.lose_reply(times=some)
            case Disturbance.API_SERVER_KILLED:
                self._kill_api_server(planned.extent * OUTAGE)
            case Disturbance.SCHEDULER_STARTED:
                self._second = self._stage.schedulers.start()
            case Disturbance.SCHEDULER_KILLED:
                if self._second:
                    self._second.end(SIGKILL)
                self._second = None

    def _kill_api_server(self, seconds: float) -> None:
        control_plane = self._stage.control_plane
        assert control_plane is not None, "not possible on this stage"
        control_plane.kill_apiserver()
        self._over.wait(seconds)
        control_plane.start_apiserver()
