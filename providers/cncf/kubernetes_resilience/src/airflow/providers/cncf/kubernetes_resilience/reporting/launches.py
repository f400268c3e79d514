# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The launches of a task instance, try by try, from rows of Airflow and of the ledger.

The ledger has failed launches. Other launches are only known by reports of their workers: the start, from
Airflow 3.2 on, and the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from airflow.utils.state import State, TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.reporting.views import (
    Budget,
    EndView,
    FailureView,
    LaunchEnd,
    LaunchView,
    TaskInstanceView,
    TryView,
)
from airflow_resilience.context import StateChangeReason
from airflow_resilience.decision import Action
from airflow_resilience.ledger import LAUNCH_HELD_EVENT
from airflow_resilience.ledger_entries import HeldLaunch, LedgerEntry
from airflow_resilience.ledger_queries import FAILURE_EVENTS, TaskInstanceEvents, TryRow, WorkerEvent
from airflow_resilience.outages import Dependency
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.retry_policy.evidence import Phase

_HELD = frozenset({TaskInstanceState.QUEUED, TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING})
_OF_OURS = frozenset({*FAILURE_EVENTS, LAUNCH_HELD_EVENT})
"""No worker reports these events. Rows of another version cannot be read."""
_ENDED = frozenset({*State.finished, TaskInstanceState.UP_FOR_RETRY})


@dataclass(slots=True)
class _TryTimeline:
    """Takes in the events of one try, oldest first."""

    launches: list[LaunchView] = field(default_factory=list)
    running: WorkerEvent | None = None
    """Start of a worker whose end is unknown."""
    ended_by: EndView | None = None
    held_for: Dependency | None = None
    held_since: datetime | None = None

    def take(self, event: WorkerEvent) -> None:
        match event.content:
            case HeldLaunch(dependency=dependency):
                self.held_for, self.held_since = dependency, event.at
            case LedgerEntry() as entry:
                self._fail(entry, event.at)
                if not entry.away_since or entry.dependency != self.held_for:
                    self.held_for = self.held_since = None
            case StoredContext(context=context):
                self.ended_by = EndView.of(event.at, context)
            case None if event.event == TaskInstanceState.RUNNING:
                self.ended_by = None  # a cleared try that has begun anew under the same number
                self.running = event
                self.held_for = self.held_since = None
            case None if self.running and event.event not in _OF_OURS:
                self._end(event.event, self.running.at, event.at, None)

    def conclude(self, row: TryRow) -> None:
        """Add the launch that only the task instance's row shows."""
        last = self.launches[-1] if self.launches else None
        if not self.running and last and not _has_successor(last, row):
            # The row has the host of the worker, which its report lacks.
            if last.end is LaunchEnd.REPORTED and last.state == row.state:
                last.host = row.hostname or None
            return
        started_at = (self.running and self.running.at) or row.started_at
        if row.state == TaskInstanceState.QUEUED:
            waiting = self._add(LaunchEnd.WAITING, row.state)
            waiting.due = last.failure.due if last and last.failure else None
            waiting.held_for, waiting.held_since = self.held_for and str(self.held_for), self.held_since
        elif row.state in _HELD:
            self._add(LaunchEnd.RUNNING, row.state, row.hostname or None, started_at)
        elif row.state in _ENDED and started_at:
            self._end(row.state, started_at, row.ended_at, row.hostname or None)

    def _fail(self, entry: LedgerEntry, at: datetime | None) -> None:
        # A launch that was given up may have a second entry: the last entry about a worker counts.
        earlier = next((item for item in self.launches if _is_about(item, entry)), None)
        if earlier:
            self.launches.remove(earlier)
        started_at = earlier.started_at if earlier else None
        if self.running and entry.phase is Phase.EXECUTION:
            started_at = self.running.at
        self.running = None
        self._add(LaunchEnd.FAILED, None, entry.worker_name, started_at, at, entry)

    def _end(
        self, state: str | None, started_at: datetime | None, at: datetime | None, host: str | None
    ) -> None:
        self.running = None
        self._add(LaunchEnd.REPORTED, state, host, started_at, at)

    def _add(
        self,
        end: LaunchEnd,
        state: str | None,
        host: str | None = None,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
        entry: LedgerEntry | None = None,
    ) -> LaunchView:
        following = self.launches[-1].number + 1 if self.launches else 1
        self.launches.append(
            LaunchView(
                # The ledger counts launches anew when a worker has started the task; older events may be
                # missing.
                number=max(following, entry.launch) if entry else following,
                end=end,
                state=state,
                host=host,
                started_at=started_at,
                ended_at=ended_at,
                due=None,
                held_for=None,
                held_since=None,
                failure=FailureView.of(entry) if entry else None,
            )
        )
        return self.launches[-1]


def show_task_instance(
    dag_id: str, run_id: str, task_id: str, map_index: int, found: TaskInstanceEvents
) -> TaskInstanceView:
    """Show the launches of a task instance."""
    return TaskInstanceView(
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        map_index=map_index,
        state=found.present.state,
        is_live=found.present.state in State.unfinished,
        is_cut=found.is_cut,
        tries=views_of_tries(found),
    )


def views_of_tries(found: TaskInstanceEvents) -> list[TryView]:
    """Return the views of all tries, the newest try first, its launches oldest first."""
    rows = {row.try_number: row for row in (*found.past, found.present)}
    if found.past and found.past[-1].try_number == found.present.try_number:
        # The try has ended, and its task instance is ready for the next one.
        rows[found.present.try_number] = found.past[-1]
    timelines: dict[int, _TryTimeline] = {number: _TryTimeline() for number in rows}
    for event in found.events:
        timelines.setdefault(event.try_number, _TryTimeline()).take(event)
    tries = []
    cleared = 0
    for number in sorted(timelines):
        timeline, row = timelines[number], rows.get(number)
        if row:
            timeline.conclude(row)
        if not timeline.launches and not timeline.ended_by:
            continue  # a try that has not begun
        tries.append(_view(number, row, timeline, cleared))
        cleared += _was_cleared(timeline)
    return tries[::-1]


def _view(number: int, row: TryRow | None, timeline: _TryTimeline, cleared: int) -> TryView:
    failures = [launch.failure for launch in timeline.launches if launch.failure]
    retries = None
    if row and row.max_tries is not None:
        retries = Budget(used=max(0, number - 1 - cleared), allowed=max(0, row.max_tries - cleared))
    return TryView(
        number=number,
        state=row.state if row else None,
        launches=timeline.launches,
        ended_by=timeline.ended_by,
        relaunches=_budget(failures, Phase.LAUNCH),
        infrastructure=_budget(failures, Phase.EXECUTION),
        retries=retries,
    )


def _was_cleared(timeline: _TryTimeline) -> bool:
    """Return whether a running try was cleared: the next try is none of the task's own retries."""
    return timeline.ended_by is not None and timeline.ended_by.reason is StateChangeReason.MANUAL_CLEAR


def _budget(failures: Iterable[FailureView], phase: Phase) -> Budget | None:
    """Return the last recorded budget of a kind of failure; None without such a failure."""
    decisions = [failure.decision for failure in failures if failure.phase is phase]
    said = next((item.budget for item in reversed(decisions) if item.budget), None)
    if said or not decisions:
        return said
    # Rows of version 0.1.0 have no budget.
    return Budget(used=sum(item.action is Action.RELAUNCH for item in decisions), allowed=None)


def _is_about(launch: LaunchView, entry: LedgerEntry) -> bool:
    return launch.failure is not None and launch.failure.uid == entry.worker_uid


def _has_successor(launch: LaunchView, row: TryRow) -> bool:
    """Return whether another launch follows the last known end."""
    if launch.failure:
        return launch.failure.decision.action is Action.RELAUNCH
    # The task has deferred, waits for input or was rescheduled, and another worker goes on.
    return row.state in _HELD
