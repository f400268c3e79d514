# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The launches of a task instance, try by try, from what Airflow and the ledger have written down.

A launch that failed is in the ledger. Of another one it is only known what its worker has reported: that it
started, from Airflow 3.2 on, and how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from airflow.utils.state import State, TaskInstanceState

from airflow_resilience.context import StateChangeReason
from airflow_resilience.decision import Action, BudgetUse
from airflow_resilience.ledger import LedgerEntry
from airflow_resilience.ledger_queries import TaskInstanceEvents, TryRow, WorkerEvent
from airflow_resilience.outages import Dependency
from airflow_resilience.retry_policy.evidence import Phase

_HELD = frozenset({TaskInstanceState.QUEUED, TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING})
_ENDED = frozenset({*State.finished, TaskInstanceState.UP_FOR_RETRY})


class LaunchEnd(StrEnum):
    """How a launch has ended, as far as it has."""

    FAILED = "failed"
    """Its worker has failed, and the ledger says why."""
    REPORTED = "reported"
    """Its worker has reported how its task ended, or that it waits for something."""
    RUNNING = "running"
    WAITING = "waiting"
    """Its worker has not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldLaunch:
    """One launch of a try."""

    number: int
    """From 1."""
    end: LaunchEnd
    state: str | None
    """State of the task instance that the launch has led to, or has now; None if it has failed."""
    host: str | None
    """Name of its pod, or what its worker takes for its host's name; None if neither is known."""
    started_at: datetime | None
    ended_at: datetime | None
    """When its end was settled, or reported."""
    entry: LedgerEntry | None = None
    """What the ledger says, if it has failed."""
    due: datetime | None = None
    """When a launch that waits may be made."""
    held_for: Dependency | None = None
    """What a launch that waits is held back for, as it was away when that was written down last."""
    held_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldTry:
    """One try of a task instance."""

    number: int
    state: str | None
    launches: Sequence[ToldLaunch]
    relaunches: BudgetUse | None
    """Of its launches, those that failed before its task began; None if none has."""
    infrastructure: BudgetUse | None
    """Of the losses of its running worker; None if there was none."""
    retries: BudgetUse | None
    """Of the task's own retries, those that were used before this try."""
    ended_by: WorkerEvent | None = None
    """What has ended it, if that was not the loss of a worker; its context says why."""


@dataclass(slots=True)
class _Teller:
    """Takes in the events of one try, oldest first."""

    launches: list[ToldLaunch] = field(default_factory=list)
    running: WorkerEvent | None = None
    """The start of a worker of whose end nothing is known yet."""
    ended_by: WorkerEvent | None = None
    held_for: Dependency | None = None
    held_since: datetime | None = None

    def take(self, event: WorkerEvent) -> None:
        if event.held:
            self.held_for, self.held_since = event.held.dependency, event.at
        elif event.entry:
            self._fail(event.entry, event.at)
            if not event.entry.away_since or event.entry.dependency != self.held_for:
                self.held_for = self.held_since = None
        elif event.context:
            self.ended_by = event
        elif event.event == TaskInstanceState.RUNNING:
            self.ended_by = None  # a try that was cleared, and has begun anew under the same number
            self.running = event
            self.held_for = self.held_since = None
        elif self.running:
            self._end(event.event, self.running.at, event.at, None)

    def conclude(self, row: TryRow) -> None:
        """Add the launch of which nothing but the task instance's row tells."""
        last = self.launches[-1] if self.launches else None
        if not self.running and last and not _goes_on_after(last, row):
            self._name_last(row)
            return
        started_at = (self.running and self.running.at) or row.started_at
        if row.state == TaskInstanceState.QUEUED:
            due = last.entry.due if last and last.entry else None
            self._add(LaunchEnd.WAITING, row.state, None, None, None, due=due)
            self.launches[-1] = replace(self.launches[-1], held_for=self.held_for, held_since=self.held_since)
        elif row.state in _HELD:
            self._add(LaunchEnd.RUNNING, row.state, row.hostname or None, started_at, None)
        elif row.state in _ENDED and started_at:
            self._end(row.state, started_at, row.ended_at, row.hostname or None)

    def _fail(self, entry: LedgerEntry, at: datetime | None) -> None:
        # A launch that was given up may be heard of again: what was said last about a worker counts.
        earlier = next((item for item in self.launches if _is_about(item, entry)), None)
        if earlier:
            self.launches.remove(earlier)
        started_at = earlier.started_at if earlier else None
        if self.running and entry.phase is Phase.EXECUTION:
            started_at = self.running.at
        self.running = None
        self._add(LaunchEnd.FAILED, None, entry.worker_name, started_at, at, entry=entry)

    def _end(
        self, state: str | None, started_at: datetime | None, at: datetime | None, host: str | None
    ) -> None:
        self.running = None
        self._add(LaunchEnd.REPORTED, state, host, started_at, at)

    def _name_last(self, row: TryRow) -> None:
        last = self.launches[-1]
        if last.end is LaunchEnd.REPORTED and last.state == row.state:
            self.launches[-1] = replace(last, host=row.hostname or None)

    def _add(
        self,
        end: LaunchEnd,
        state: str | None,
        host: str | None,
        started_at: datetime | None,
        ended_at: datetime | None,
        *,
        entry: LedgerEntry | None = None,
        due: datetime | None = None,
    ) -> None:
        following = self.launches[-1].number + 1 if self.launches else 1
        # The ledger counts launches anew when a worker has started the task; older events may be missing.
        number = max(following, entry.launch) if entry else following
        self.launches.append(
            ToldLaunch(
                number=number,
                end=end,
                state=state,
                host=host,
                started_at=started_at,
                ended_at=ended_at,
                entry=entry,
                due=due,
            )
        )


def tell_tries(found: TaskInstanceEvents) -> list[ToldTry]:
    """Tell what has become of each launch of each try, the newest try first, its launches oldest first."""
    rows = {row.try_number: row for row in (*found.past, found.present)}
    if found.past and found.past[-1].try_number == found.present.try_number:
        # The try has ended, and its task instance is ready for the next one.
        rows[found.present.try_number] = found.past[-1]
    tellers: dict[int, _Teller] = {number: _Teller() for number in rows}
    for event in found.events:
        tellers.setdefault(event.try_number, _Teller()).take(event)
    tries = []
    cleared = 0
    for number in sorted(tellers):
        teller, row = tellers[number], rows.get(number)
        if row:
            teller.conclude(row)
        if not teller.launches and not teller.ended_by:
            continue  # a try that has not begun
        tries.append(_tell(number, row, teller, cleared))
        cleared += _was_cleared(teller)
    return tries[::-1]


def _tell(number: int, row: TryRow | None, teller: _Teller, cleared: int) -> ToldTry:
    entries = list(_entries(teller.launches))
    retries = None
    if row and row.max_tries is not None:
        retries = BudgetUse(max(0, number - 1 - cleared), max(0, row.max_tries - cleared))
    return ToldTry(
        number=number,
        state=row.state if row else None,
        launches=teller.launches,
        ended_by=teller.ended_by,
        relaunches=_budget(entries, Phase.LAUNCH),
        infrastructure=_budget(entries, Phase.EXECUTION),
        retries=retries,
    )


def _was_cleared(teller: _Teller) -> bool:
    """Whether a try was cleared while it ran: the next one is none of the task's own retries."""
    ended_by = teller.ended_by
    return bool(ended_by and ended_by.context and ended_by.context.reason is StateChangeReason.MANUAL_CLEAR)


def _budget(entries: Iterable[LedgerEntry], phase: Phase) -> BudgetUse | None:
    """Return what was said last about the budget of a kind of failure; None if there was none."""
    decisions = [entry.decision for entry in entries if entry.phase is phase]
    said = next((item.budget for item in reversed(decisions) if item.budget), None)
    if said or not decisions:
        return said
    # Rows of version 0.1.0 do not say it.
    return BudgetUse(sum(item.action is Action.RELAUNCH for item in decisions), None)


def _entries(launches: Iterable[ToldLaunch]) -> Iterator[LedgerEntry]:
    return (launch.entry for launch in launches if launch.entry)


def _is_about(launch: ToldLaunch, entry: LedgerEntry) -> bool:
    return launch.entry is not None and launch.entry.worker_uid == entry.worker_uid


def _goes_on_after(launch: ToldLaunch, row: TryRow) -> bool:
    """Whether there is another launch after the last one that is known to have ended."""
    if launch.entry:
        return launch.entry.decision.action is Action.RELAUNCH
    # It has deferred, waits for input or was rescheduled, and another worker goes on.
    return row.state in _HELD
