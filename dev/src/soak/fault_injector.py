# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Carries out what was planned to go wrong, in a thread of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from signal import SIGKILL
from threading import Event
from types import TracebackType
from typing import Self

import httpx

from soak.disturbances import LONG_OUTAGE_EVENTS, SCHEDULER_EVENTS, Disturbance, Planned
from soak.settings import DEAD_AFTER
from testbed.predicates import creates_pod, deletes_pod, labels_pod
from testbed.schedulers import Scheduler
from testbed.testbed import Testbed

OUTAGE = 12.0
"""Seconds for which the API server is away, at most."""

BURST = 40
"""Requests that are refused, or whose replies are lost, at most."""

FEW = 10
"""Creates that are refused for good, as it seems, or deletions that are held back, at most."""

REPEATING = 5.0
"""Seconds for which watch events are repeated."""

LATE = (4.0, 16.0)
"""Seconds for which deletions are held back: until an image is pulled after all, and the worker runs."""

RELABEL_WAIT = 1.5 * DEAD_AFTER
"""Seconds in which the second scheduler has relabelled a pod of the first, which does not work any more."""


def possible_on(testbed: Testbed) -> list[Disturbance]:
    """Return what can go wrong on a testbed at any time."""
    without = {*SCHEDULER_EVENTS, *LONG_OUTAGE_EVENTS}
    if testbed.control_plane is None:
        without.add(Disturbance.API_SERVER_KILLED)
    return [kind for kind in Disturbance if kind not in without]


class FaultInjector:
    """
    Does what is planned, one thing after the other, from entering the ``with`` block to its end.

    :param planned: in the order of time, which counts from the beginning of the block
    """

    def __init__(self, testbed: Testbed, planned: Sequence[Planned]) -> None:
        self.done: Counter[Disturbance] = Counter()
        self.cleared: Counter[tuple[str, str, str, int]] = Counter()
        """How often each task instance was cleared while it ran, by its DAG, run, task and map index."""
        self._testbed = testbed
        self._first = testbed.schedulers.alive[0]
        self._planned = planned
        self._over = Event()
        self._second: Scheduler | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fault_injector")

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
        self._testbed.proxy.clear()
        self._kill_second()
        self._first.resume()
        self._bring_api_server_back()
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
        extent = planned.extent
        match planned.kind:
            case Disturbance.TASK_CLEARED:
                self._clear_task(extent)
            case Disturbance.API_SERVER_KILLED:
                self._kill_api_server()
                self._over.wait(extent * OUTAGE)
                self._bring_api_server_back()
            case Disturbance.API_SERVER_GONE:
                self._kill_api_server()
            case Disturbance.API_SERVER_BACK:
                self._bring_api_server_back()
            case kind if kind in SCHEDULER_EVENTS:
                self._disturb_schedulers(kind, extent)
            case kind:
                self._disturb_requests(kind, extent)

    def _disturb_requests(self, kind: Disturbance, extent: float) -> None:
        faults, some, few = self._testbed.proxy.faults, 1 + int(extent * BURST), 1 + int(extent * FEW)
        match kind:
            case Disturbance.TOO_MANY_REQUESTS:
                faults.fail(429, times=some, retry_after=1)
            case Disturbance.UNAUTHORIZED:
                faults.fail(401, times=few, when=creates_pod)
            case Disturbance.FORBIDDEN:
                faults.fail(403, times=few, when=creates_pod)
            case Disturbance.REPLIES_LOST:
                faults.lose_reply(times=some)
            case Disturbance.DELETIONS_LATE:
                shortest, longest = LATE
                faults.delay(shortest + extent * (longest - shortest), times=few, when=deletes_pod)
            case _:
                self._disturb_watches(kind)

    def _disturb_watches(self, kind: Disturbance) -> None:
        proxy = self._testbed.proxy
        match kind:
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

    def _disturb_schedulers(self, kind: Disturbance, extent: float) -> None:
        match kind:
            case Disturbance.SCHEDULER_STARTED:
                self._second = self._testbed.schedulers.start()
            case Disturbance.SCHEDULER_KILLED:
                self._kill_second()
            case Disturbance.SCHEDULER_PAUSED:
                self._testbed.schedulers.pause(self._first)
            case Disturbance.SCHEDULER_RESUMED:
                self._first.resume()
            case Disturbance.SCHEDULER_KILLED_AT_RELABEL:
                self._kill_second_at_relabel(applied=extent < 0.5)

    def _kill_api_server(self) -> None:
        control_plane = self._testbed.control_plane
        assert control_plane is not None, "not possible on this testbed"
        control_plane.kill_apiserver()

    def _bring_api_server_back(self) -> None:
        control_plane = self._testbed.control_plane
        if control_plane and not control_plane.apiserver.running:
            control_plane.start_apiserver()

    def _kill_second(self) -> None:
        if self._second:
            self._second.end(SIGKILL)
        self._second = None

    def _kill_second_at_relabel(self, *, applied: bool) -> None:
        """
        Let the first scheduler come back when the second has begun to take over, and is killed for it.

        :param applied: whether the pods have the label of the second by then
        """
        with self._testbed.proxy.hold(when=labels_pod, reply=applied) as held:
            # If there is nothing to take over, there is nothing to wait for.
            with suppress(AssertionError):
                held.wait_for(1, RELABEL_WAIT)
            self._kill_second()
        self._first.resume()

    def _clear_task(self, extent: float) -> None:
        """Clear a task that runs, in its first try; once is enough."""
        tasks = self._testbed.records.task_instances()
        running = [task for task in tasks if (task.state, task.try_number) == ("running", 1)]
        if not running:
            return
        task = running[int(extent * len(running))]
        # It may have ended a moment before.
        with suppress(httpx.HTTPStatusError):
            if self._testbed.api.clear(*task[:3], only_running=True):
                self.cleared[task[:4]] += 1
