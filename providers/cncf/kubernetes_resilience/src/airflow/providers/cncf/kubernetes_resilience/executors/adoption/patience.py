# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How long adoption may keep the scheduler waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow.configuration import conf

SHARE = 0.5
"""Of ``[scheduler] scheduler_health_check_threshold``. The rest is for what else there is to do between two
heartbeats."""


class Patience:
    """
    Bounds how long the scheduler is kept waiting, by all its executors together.

    While it waits it sends no heartbeat, and holds rows locked. After ``[scheduler]
    scheduler_health_check_threshold`` seconds other schedulers would take it for dead. So in any time of that
    length it waits for half of it at most.
    """

    def __init__(self) -> None:
        self._waits: deque[tuple[float, float]] = deque()

    @contextmanager
    def spent(self, clock: Callable[[], float]) -> Iterator[float]:
        """
        Wait within the block; yield the seconds that are left for it, which may be none.

        :param clock: monotonic time, seconds
        """
        began = clock()
        try:
            yield self._left(began)
        finally:
            self._waits.append((clock(), clock() - began))

    def forget(self, now: float) -> None:
        """Forget what was waited so long ago that it does not count any more."""
        while self._waits and self._waits[0][0] <= now - _threshold():
            self._waits.popleft()

    def _left(self, now: float) -> float:
        self.forget(now)
        return max(0.0, SHARE * _threshold() - sum(seconds for _, seconds in self._waits))


def _threshold() -> float:
    return conf.getfloat("scheduler", "scheduler_health_check_threshold")
