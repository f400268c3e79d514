# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Has reports made again that Airflow has lost.

The scheduler takes the reports out of the executor, and skips those of task instances whose row another
transaction has locked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots

REPORT_TIMEOUT = 300.0
"""Seconds for which a report is made again. Airflow's own limits end its task afterwards."""


_UNFINISHED = (TaskInstanceState.QUEUED, TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING)


class _Taken(NamedTuple):
    """A report that the scheduler has taken."""

    event: tuple[Any, Any]
    state: str | None
    """Of the task instance, before the scheduler acted on the report."""
    until: float


@define(kw_only=True, eq=False, repr=False, slots=False)
class Reports:
    """Remembers reports until the row of the task instance shows them."""

    _slots: Slots
    """Where they are made again."""
    _isolation: Isolation
    _job_id: int | None
    _clock: Callable[[], float]
    _taken: dict[TaskInstanceKey, _Taken] = field(factory=dict, init=False)

    def take(self, events: Mapping[Any, tuple[Any, Any]]) -> None:
        """
        Note the reports that the scheduler takes, and acts on next.

        :raises DatabaseAwayError: if the database does not answer
        """
        until = self._clock() + REPORT_TIMEOUT
        # A guess of the scheduler has no text, and is repeated while the worker's heartbeat is missing.
        failed = [key for key in events if _reports(events, key, TaskInstanceState.FAILED) and events[key][1]]
        found = self._isolation.batch("report", failed, self._read_states)
        if any(_reports(events, key, TaskInstanceState.SUCCESS) for key in events):
            found += [(key, state) for key, state in self._read_restarting() if key in events]
        for key, state in found:
            before = self._taken.get(key)
            self._taken[key] = _Taken(events[key], state, before.until if before else until)

    def tick(self) -> None:
        """
        Make those reports again that have changed nothing.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        now = self._clock()
        found = dict(self._isolation.batch("report", self._taken, self._read_states))
        self._taken = {
            key: taken
            for key, taken in self._taken.items()
            if _has_changed_nothing(taken.state, found.get(key))
            if taken.until > now and not self._slots.has(key)
        }
        for key, taken in self._taken.items():
            self._slots.report_again(key, taken.event)

    def _read_states(self, keys: Sequence[TaskInstanceKey]) -> list[tuple[TaskInstanceKey, str | None]]:
        with create_session(scoped=False) as session:
            rows = task_instances.read_by_key(keys, session=session).values()
        own = (row for row in rows if row.queued_by_job_id == self._job_id)
        return [(row.key, row.state) for row in own if row.state in _UNFINISHED]

    def _read_restarting(self) -> list[tuple[TaskInstanceKey, str | None]]:
        with create_session(scoped=False) as session:
            keys = task_instances.read_all_restarting(self._job_id, session=session)
        return [(key, TaskInstanceState.RESTARTING) for key in keys]


def _has_changed_nothing(before: str | None, now: str | None) -> bool:
    """Return whether a task instance, perhaps cleared while it ran, still waits for the report."""
    was_cleared = before == TaskInstanceState.RUNNING and now == TaskInstanceState.RESTARTING
    return now == before or was_cleared


def _reports(events: Mapping[Any, tuple[Any, Any]], key: Any, state: TaskInstanceState) -> bool:
    return isinstance(key, TaskInstanceKey) and events[key][0] == state
