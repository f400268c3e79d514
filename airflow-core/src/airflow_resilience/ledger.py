# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The durable count of failed workers: one row of Airflow's own audit log for each of them.

A row is written before any action about the failure, and has the identity of the worker that failed. The same
failure may be seen again: an event is replayed, a scheduler restarts, a second one takes over. The row then
keeps the failure from being counted or decided twice. The task's *Audit Log* tab shows the rows.

A worker that failed before its task ran, and one that was lost while it ran, are counted apart: each kind
has an event of its own. A row may say that it counts as one of the other kind. A task instance that runs
again gets another UUID, and the row has both: the count follows them through the try.

Airflow's scheduler counts its "stuck in queued reschedule" events in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from airflow.models.log import Log
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState
from sqlalchemy import case, func, insert, select, tuple_
from sqlalchemy.orm import Session

from airflow_resilience.context import ExecutionContext, MetadataKey
from airflow_resilience.decision import Action, Decision
from airflow_resilience.keys import names_of_try
from airflow_resilience.mutation import Mutation
from airflow_resilience.outages import Dependency
from airflow_resilience.retry_policy.evidence import Phase

LAUNCH_FAILURE_EVENT = "pod launch failed"
"""``Log.event`` of a ledger row about a launch."""
EXECUTION_FAILURE_EVENT = "pod execution failed"
"""``Log.event`` of a ledger row about a task that was running."""
LAUNCH_HELD_EVENT = "pod launch held"
"""``Log.event`` of a row about a launch that is held back. The row is for people: nothing is counted by
it."""

_EVENTS = {Phase.LAUNCH: LAUNCH_FAILURE_EVENT, Phase.EXECUTION: EXECUTION_FAILURE_EVENT}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A failed worker, the reason of its failure, and the decision."""

    ti_id: str
    """The task instance's UUID. A cleared task instance has a new one, so its count begins anew."""
    worker_uid: str
    """Identity of the worker that failed. An identity is never used twice (for Kubernetes: the pod's UID)."""
    worker_name: str
    launch: int
    """Number of the launch in its try, from 1."""
    reason: str
    """The platform's own word for the failure."""
    context: ExecutionContext
    decision: Decision
    due: datetime | None = None
    """When the next launch may be made, with a time zone; None if there is none to come."""
    phase: Phase = Phase.LAUNCH
    """Phase of the task, which determines the event of the row."""
    next_ti_id: str | None = None
    """New UUID of a task instance that was running, and runs again; else None."""
    dependency: Dependency | None = None
    """Dependency that was not available to the launch; None if the cause names no shared dependency."""
    away_since: datetime | None = None
    """Start of that dependency's outage, with a time zone; None if no outage was known."""
    node_is_suspect: bool = False
    """Whether the node is suspect from this failure on: all launches prefer other nodes."""

    @property
    def was_pending(self) -> bool:
        """Whether the worker could still start at the time of this failure."""
        metadata = self.context.metadata
        # A pod is Pending for as long as one of its containers has never run, also when its worker has ended.
        return metadata.get(MetadataKey.PHASE) == "Pending" and MetadataKey.EXIT_CODE not in metadata

    def to_json(self) -> str:
        """Return the text that is stored in ``Log.extra``."""
        return json.dumps(
            {
                **self.decision.to_dict(),
                "due": self.due.isoformat() if self.due else None,
                "launch": self.launch,
                "reason": self.reason,
                "context": self.context.to_dict(),
                "worker_name": self.worker_name,
                "worker_uid": self.worker_uid,
                "ti_id": self.ti_id,
                "phase": self.phase.value,
                "next_ti_id": self.next_ti_id,
                "dependency": self.dependency and str(self.dependency),
                "away_since": self.away_since and self.away_since.isoformat(),
                "node_is_suspect": self.node_is_suspect,
            }
        )

    @classmethod
    def from_json(cls, text: str | None) -> LedgerEntry | None:
        """Read ``Log.extra`` back; None for a row of another component."""
        try:
            fields = json.loads(text or "")
            return cls(
                ti_id=str(fields["ti_id"]),
                worker_uid=str(fields["worker_uid"]),
                worker_name=str(fields["worker_name"]),
                launch=int(fields["launch"]),
                reason=str(fields["reason"]),
                context=ExecutionContext.from_dict(fields["context"]),
                decision=Decision.from_dict(fields),
                due=_read_time(fields["due"]),
                # Rows of version 0.1.0 have none of these.
                phase=Phase(fields.get("phase", Phase.LAUNCH)),
                next_ti_id=_read_id(fields.get("next_ti_id")),
                dependency=Dependency.parse(named) if (named := fields.get("dependency")) else None,
                away_since=_read_time(fields.get("away_since")),
                node_is_suspect=bool(fields.get("node_is_suspect")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLaunch:
    """A held launch and the dependency for which it is held."""

    ti_id: str
    """The task instance's UUID."""
    dependency: Dependency
    """The unavailable dependency."""
    away_since: datetime
    """With a time zone."""

    def to_json(self) -> str:
        """Return the text that is stored in ``Log.extra``."""
        return json.dumps(
            {
                "ti_id": self.ti_id,
                "dependency": str(self.dependency),
                "away_since": self.away_since.isoformat(),
            }
        )

    @classmethod
    def from_json(cls, text: str | None) -> HeldLaunch | None:
        """Read ``Log.extra`` back; None for a row of another version."""
        try:
            fields = json.loads(text or "")
            return cls(
                ti_id=str(fields["ti_id"]),
                dependency=Dependency.parse(fields["dependency"]),
                away_since=_with_zone(datetime.fromisoformat(fields["away_since"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


class LaunchHistory:
    """
    Ledger entries of one try, oldest first.

    :param phase: kind of entries that count: failed launches, or losses of the worker while the task was
        running
    """

    def __init__(self, phase: Phase = Phase.LAUNCH) -> None:
        self.entries: list[LedgerEntry] = []
        self._phase = phase

    @property
    def decisions(self) -> list[Decision]:
        """Decisions about the failures that count."""
        return [entry.decision for entry in self.entries if entry.phase is self._phase]

    @property
    def relaunches(self) -> int:
        """Number of relaunches that followed these failures."""
        return sum(decision.action is Action.RELAUNCH for decision in self.decisions)

    @property
    def mutations(self) -> list[Mutation]:
        """Changes of later launches, from all entries."""
        return [entry.decision.mutation for entry in self.entries if entry.decision.mutation]

    @property
    def last(self) -> LedgerEntry | None:
        """The latest failure."""
        return self.entries[-1] if self.entries else None

    def add(self, entry: LedgerEntry) -> None:
        """
        Add a failure. A worker fails once: a later entry about the worker replaces the earlier one.

        A later entry is written about a worker that was given up, but started before its replacement.
        """
        if earlier := self.of_worker(entry.worker_uid):
            self.forget(earlier)
        self.entries.append(entry)

    def forget(self, entry: LedgerEntry) -> None:
        """Remove an entry from the count."""
        self.entries.remove(entry)

    def of_worker(self, worker_uid: str) -> LedgerEntry | None:
        """Return the entry about a worker; None if the ledger has none."""
        return next((entry for entry in self.entries if entry.worker_uid == worker_uid), None)


class Histories(NamedTuple):
    """The ledger's entries about one try."""

    launches: LaunchHistory
    """Its failed launches since its task process last started."""
    whole_try: LaunchHistory
    """All of its failures; only losses of the running worker count."""


class _Row(NamedTuple):
    """A row about one try."""

    event: str
    entry: LedgerEntry | None
    """None for a start, and for a row of another component."""


def read_histories(
    ti_ids: Mapping[TaskInstanceKey, str], *, until: str | None = None, session: Session
) -> dict[TaskInstanceKey, Histories]:
    """
    Read the ledger's entries about each try, with one query.

    Losses of running tasks count however often the task process has started: each loss has replaced the task
    instance's UUID, and the rows lead from each of these UUIDs to the next one. The UUID of a cleared task
    instance has no such row, so its count begins anew.

    :param ti_ids: the tries to look up, each with its task instance's present UUID
    :param until: UID of a worker: rows after its failure, starts too, are ignored for its launches; None for
        all rows
    :param session: session to read with
    """
    rows = _read(ti_ids, session)
    return {
        key: Histories(_launches(ti_id, rows[key], until), _whole_try(ti_id, rows[key]))
        for key, ti_id in ti_ids.items()
    }


def read_replaced_ids(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, set[str]]:
    """Return the UUIDs that tries had before losses of running workers, with one query."""
    return {
        key: {row.entry.ti_id for row in rows if row.entry and row.entry.next_ti_id}
        for key, rows in _read(keys, session).items()
    }


def _launches(ti_id: str, rows: Iterable[_Row], until: str | None = None) -> LaunchHistory:
    history = LaunchHistory()
    for row in rows:
        if row.event == TaskInstanceState.RUNNING:
            history.entries.clear()
        elif row.event == LAUNCH_FAILURE_EVENT and row.entry and row.entry.ti_id == ti_id:
            history.add(row.entry)
            if row.entry.worker_uid == until:
                break
    return history


def _whole_try(ti_id: str, rows: Iterable[_Row]) -> LaunchHistory:
    """Return the entries of the task instance that has the UUID now."""
    entries = [row.entry for row in rows if row.entry]
    before: dict[str, list[str]] = {}
    for entry in entries:
        if entry.next_ti_id:
            before.setdefault(entry.next_ti_id, []).append(entry.ti_id)
    chain: set[str] = set()
    found = [ti_id]
    while found:
        if (newer := found.pop()) not in chain:
            chain.add(newer)
            found.extend(before.get(newer, ()))
    history = LaunchHistory(Phase.EXECUTION)
    for entry in entries:
        if (entry.next_ti_id or entry.ti_id) in chain:
            history.add(entry)
    return history


def record(entries: Collection[tuple[TaskInstanceKey, LedgerEntry]], *, session: Session) -> None:
    """
    Add failed workers to the ledger, with one statement. The entries count once the caller has committed.

    The caller holds the row locks of the task instances. Otherwise two schedulers could record one failure.

    :param entries: each with the try that it is about
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take one of them
    """
    _insert(((key, _EVENTS[entry.phase], entry.to_json()) for key, entry in entries), session)


def record_held(held: Iterable[tuple[TaskInstanceKey, HeldLaunch]], *, session: Session) -> None:
    """
    Record held launches, with one statement.

    :param held: each with its try
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take one of them
    """
    _insert(((key, LAUNCH_HELD_EVENT, item.to_json()) for key, item in held), session)


def _insert(rows: Iterable[tuple[TaskInstanceKey, str, str]], session: Session) -> None:
    now = datetime.now(UTC)
    values = [{**key._asdict(), "dttm": now, "event": event, "extra": extra} for key, event, extra in rows]
    if values:
        session.execute(insert(Log), values)


def _read_time(text: str | None) -> datetime | None:
    return _with_zone(datetime.fromisoformat(text)) if text else None


def _with_zone(time: datetime) -> datetime:
    # A time without a time zone is not ours, and cannot be compared with one that has a time zone.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _read_id(value: object) -> str | None:
    return None if value is None else str(value)


def _read(keys: Iterable[TaskInstanceKey], session: Session) -> dict[TaskInstanceKey, list[_Row]]:
    """Return the rows about each of these tries, oldest first."""
    found: dict[TaskInstanceKey, list[_Row]] = {key: [] for key in keys}
    for key, row in _rows(found, session):
        # A database that ignores case finds rows of other tasks too.
        if key in found:
            found[key].append(row)
    return found


def _rows(keys: Collection[TaskInstanceKey], session: Session) -> Iterator[tuple[TaskInstanceKey, _Row]]:
    if not keys:
        return
    events = (*_EVENTS.values(), TaskInstanceState.RUNNING.value)
    columns = names_of_try(Log)
    is_start = case((Log.event == TaskInstanceState.RUNNING.value, 1), else_=0)
    found = (
        select(
            Log.id,
            *columns,
            Log.event,
            Log.extra,
            # A sensor may have been rescheduled ten thousand times: more than one start in a row says
            # nothing that one does not.
            func.sum(is_start).over(partition_by=columns, order_by=Log.id, rows=(-1, 0)).label("starts"),
        )
        .where(tuple_(*columns).in_([tuple(key) for key in keys]), Log.event.in_(events))
        .subquery()
    )
    rows = session.execute(
        # By id, not by time. All of these rows are written under the task instance's row lock, so their ids
        # are in the order of events. The clocks of several machines are not.
        select(found).where(found.c.starts <= 1).order_by(found.c.id)
    )
    for row in rows:
        event, extra = row[6:8]
        entry = None if event == TaskInstanceState.RUNNING else LedgerEntry.from_json(extra)
        yield TaskInstanceKey(*row[1:6]), _Row(event, entry)
