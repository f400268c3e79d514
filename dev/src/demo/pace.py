# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""When the tasks of the demo may end, and when there is nothing more to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from demo.outcome import TaskOutcome

QUIET = 40.0
"""
Seconds of work, after the last task has begun, before the tasks may end.

The official executor's watch of the API gives up after 30 s without an event, lists all pods again, and only
then sees the pods that died earlier for a second time. A demo that is over before that would hide it.
"""

STUCK = 90.0
"""
Seconds without another task beginning or ending, after which those that have not are taken for stuck.

Twenty Airflow workers that start at the same time on a busy machine may need most of that.
"""

GIVE_UP = 30.0
"""Seconds without a task ending, after the tasks were told to end, before the demo gives up on the rest."""


@dataclass
class Pace:
    """
    Follows the rows of the table and says when to go on. Times are of any clock that only goes forward.

    :param started: When the run was triggered.
    """

    started: float
    released: bool = False
    _settled: frozenset[str] = field(default=frozenset(), init=False)
    _ended: frozenset[str] = field(default=frozenset(), init=False)
    _settled_at: float = field(init=False)
    _ended_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._settled_at = self._ended_at = self.started

    def observe(self, rows: Sequence[TaskOutcome], now: float) -> None:
        """Take note of what has changed."""
        settled = frozenset(row.task_id for row in rows if row.finished or row.working)
        ended = frozenset(row.task_id for row in rows if row.finished)
        if settled - self._settled:
            self._settled_at = now
        if ended - self._ended:
            self._ended_at = now
        self._settled, self._ended = settled, ended

    def may_end(self, rows: Sequence[TaskOutcome], now: float) -> bool:
        """Tell whether the tasks have worked long enough."""
        all_settled = len(self._settled) == len(rows)
        return now - self._settled_at >= (QUIET if all_settled else STUCK)

    def release(self, now: float) -> None:
        """Take note that the tasks have been told to end."""
        self.released = True
        self._ended_at = now

    def is_over(self, rows: Sequence[TaskOutcome], now: float) -> bool:
        """Tell whether all tasks have ended, or the rest of them will not."""
        if len(self._ended) == len(rows):
            return True
        if not self.released:
            return False
        # A task that had not even begun when the others were told to end is not waited for.
        begun = {row.task_id for row in rows if row.code_runs}
        return begun <= self._ended or now - self._ended_at >= GIVE_UP
