# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What people ask the audit log: the failures of a time, and everything about one task instance.

The ledger has the workers that the platform took, and others that have failed. Tasks that have failed
without that are in rows of their own, and are counted by themselves.

Every query is bounded, and its result says whether something was left out. The indexes are Airflow's own:
``idx_log_dttm`` and ``idx_log_event`` for a time, ``idx_log_task_instance`` for a task instance, and the
unique keys of ``task_instance`` and ``task_instance_history``. They are the same in Airflow 3.1 to 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState
from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import ColumnElement

from airflow_resilience.context import ExecutionContext
from airflow_resilience.keys import is_task_instance, is_try, names_of_try
from airflow_resilience.ledger import (
    EXECUTION_FAILURE_EVENT,
    LAUNCH_FAILURE_EVENT,
    LAUNCH_HELD_EVENT,
    HeldLaunch,
    LedgerEntry,
)
from airflow_resilience.outages import Dependency
from airflow_resilience.past_tries import IS_PAST, WITH_PAST_TRIES, PastTry
from airflow_resilience.propagation.audit import EVENT as TASK_FAILURE_EVENT
from airflow_resilience.propagation.stored import StoredContext

F = TypeVar("F")

LEDGER_EVENTS = (LAUNCH_FAILURE_EVENT, EXECUTION_FAILURE_EVENT)
"""``Log.event`` of the ledger's rows."""

FAILURE_EVENTS = (*LEDGER_EVENTS, TASK_FAILURE_EVENT)
"""``Log.event`` of the rows that say why something has failed."""

OUTAGE_MEMORY = timedelta(minutes=10)
"""For how long a failure tells of an outage: a probe fails at least every other minute."""

_STUCK_EVENT = "stuck in queued tries exceeded"
"""``Log.event`` of Airflow's own row, which it writes before it fails a try that was queued for too long."""

_WAITING = frozenset({TaskInstanceState.SCHEDULED.value, TaskInstanceState.QUEUED.value})
_BEGUN = frozenset({TaskInstanceState.RUNNING.value, TaskInstanceState.SUCCESS.value})

_WORKER_EVENTS = (
    TaskInstanceState.RUNNING.value,
    TaskInstanceState.SUCCESS.value,
    TaskInstanceState.FAILED.value,
    TaskInstanceState.SKIPPED.value,
    TaskInstanceState.UP_FOR_RETRY.value,
    TaskInstanceState.UP_FOR_RESCHEDULE.value,
    TaskInstanceState.DEFERRED.value,
    "awaiting_input",  # no member of TaskInstanceState before Airflow 3.3
)
"""What a worker reports of itself. Airflow's API server writes it to the audit log, from 3.2 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFailure:
    """A failed worker as the ledger has it, and what has become of its try since."""

    row_id: int
    """Of the row in the audit log. A later failure of a try has a higher one."""
    at: datetime
    """When it was settled, with a time zone."""
    key: TaskInstanceKey
    entry: LedgerEntry
    try_state: str | None
    """State of the try: of its end, or as it is now. None if it is to be scheduled, or is not there."""
    was_stuck: bool = False
    """Whether Airflow has failed the try in the end, which was queued for too long each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """A task that has failed, though not because a worker was lost, and why."""

    at: datetime
    """When it was written down, with a time zone."""
    key: TaskInstanceKey
    context: ExecutionContext


@dataclass(frozen=True, slots=True)
class Failures(Generic[F]):
    """The failures of a time."""

    found: Sequence[F]
    """Newest first."""
    is_cut: bool
    """Whether there are older ones in that time, which are left out."""
    unreadable: int
    """Rows that are not of this version, and are left out."""


class WorkerEvent(NamedTuple):
    """One row of the audit log about a task instance."""

    at: datetime | None
    try_number: int
    event: str
    entry: LedgerEntry | None
    """What the ledger says, if the row is the ledger's."""
    context: ExecutionContext | None = None
    """Why the task has failed, if the row says that and is not the ledger's."""
    held: HeldLaunch | None = None
    """Why its launch is held back, if the row says that."""


class TryRow(NamedTuple):
    """A try as Airflow has it."""

    try_number: int
    state: str | None
    hostname: str | None
    """Of its last worker; empty or None if none has started."""
    started_at: datetime | None
    ended_at: datetime | None
    max_tries: int | None


class RecordedOutage(NamedTuple):
    """What is away, as rows tell."""

    dependency: Dependency
    since: datetime
    """With a time zone."""
    held: int
    """Task instances whose launches are held for it."""
    context: ExecutionContext
    """Why a launch has failed last for it."""


class TaskInstanceEvents(NamedTuple):
    """Everything about one task instance, of all its tries."""

    events: Sequence[WorkerEvent]
    """Oldest first."""
    past: Sequence[TryRow]
    """Tries that have ended and were followed by another, or will be."""
    present: TryRow
    is_cut: bool
    """Whether there are older events, which are left out."""


def read_failures(
    since: datetime, until: datetime, *, dag_ids: Collection[str] | None, limit: int, session: Session
) -> Failures[RecordedFailure]:
    """
    Read the newest failures of workers in a time.

    :param since: with a time zone; it is part of that time
    :param until: with a time zone; it is not
    :param dag_ids: of which Dags; None for all
    :param limit: how many rows at most
    """
    rows = _with_states(LEDGER_EVENTS, since, until, dag_ids, limit, session)
    read = [
        RecordedFailure(
            row_id=item[0],
            at=item[1],
            key=TaskInstanceKey(*item[2:7]),
            entry=entry,
            try_state=item[8],
            was_stuck=item[9],
        )
        for item in rows[:limit]
        if (entry := _read_entry(item[7]))
    ]
    return Failures(read, len(rows) > limit, min(len(rows), limit) - len(read))


def find_outages(failures: Iterable[RecordedFailure]) -> dict[Dependency, LedgerEntry]:
    """
    Return what is away, each with the newest failure for it, as far as failures tell.

    The newest failure of a try that still matters says so, if the try has not gone on since. A scheduler that
    does not know of an outage yet says nothing of it.

    :param failures: those of the last :data:`OUTAGE_MEMORY`, newest first
    """
    newest: dict[Dependency, RecordedFailure] = {}
    for failure in failures:
        conclusive = _WAITING | _BEGUN if failure.entry.away_since else _BEGUN
        if failure.entry.dependency and failure.try_state in conclusive:
            newest.setdefault(failure.entry.dependency, failure)
    return {
        dependency: failure.entry for dependency, failure in newest.items() if failure.try_state in _WAITING
    }


def read_outages(
    at: datetime, *, dag_ids: Collection[str] | None, limit: int, session: Session
) -> list[RecordedOutage]:
    """
    Read what is away, and how many launches are held for it, the most first.

    :param at: that time, with a time zone
    :param dag_ids: what launches of these Dags tell; None for all
    :param limit: how many rows at most
    """
    failures = read_failures(at - OUTAGE_MEMORY, at, dag_ids=dag_ids, limit=limit, session=session)
    away = find_outages(failures.found)
    if not away:
        return []
    since = min(entry.away_since or at for entry in away.values())
    rows = _with_states((LAUNCH_HELD_EVENT,), since, at, dag_ids, limit, session)
    last = {
        TaskInstanceKey(*item[2:7]): HeldLaunch.from_json(item[7])
        for item in reversed(rows)
        if item[8] in _WAITING
    }
    held = Counter(launch.dependency for launch in last.values() if launch)
    outages = [
        RecordedOutage(dependency, entry.away_since or at, held[dependency], entry.context)
        for dependency, entry in away.items()
    ]
    return sorted(outages, key=lambda outage: (-outage.held, outage.dependency))


def read_task_failures(
    since: datetime, until: datetime, *, dag_ids: Collection[str] | None, limit: int, session: Session
) -> Failures[TaskFailure]:
    """Read the newest failures of tasks in a time that lost no worker, as :func:`read_failures` does."""
    rows = session.execute(_newest((TASK_FAILURE_EVENT,), since, until, dag_ids, limit)).all()
    read = [
        TaskFailure(at=item[1], key=TaskInstanceKey(*item[2:7]), context=stored.context)
        for item in rows[:limit]
        if (stored := _read_stored(item[7]))
    ]
    return Failures(read, len(rows) > limit, min(len(rows), limit) - len(read))


def read_task_instance(
    dag_id: str, run_id: str, task_id: str, map_index: int, *, limit: int, session: Session
) -> TaskInstanceEvents | None:
    """
    Read everything about the launches of a task instance; None if there is no such task instance.

    :param map_index: -1 for a task that is not mapped
    :param limit: how many rows of the audit log at most, the newest ones
    """
    place = TaskInstanceKey(dag_id, task_id, run_id, map_index=map_index)
    present = _try_rows(TaskInstance, place, limit, session)
    if not present:
        return None
    past = _try_rows(PastTry, place, limit, session, *IS_PAST)
    rows = session.execute(
        select(Log.dttm, Log.try_number, Log.event, Log.extra)
        .where(
            *is_task_instance(Log, place),
            Log.event.in_((*FAILURE_EVENTS, LAUNCH_HELD_EVENT, *_WORKER_EVENTS)),
            Log.try_number.is_not(None),
        )
        # By id: the clocks of several machines are not in the order of events.
        .order_by(Log.id.desc())
        .limit(limit + 1)
    ).all()
    events = [
        _worker_event(at, cast("int", number), event, extra)
        for at, number, event, extra in reversed(rows[:limit])
    ]
    return TaskInstanceEvents(events, past, present[0], len(rows) > limit)


def read_row(event: str, extra: str | None) -> LedgerEntry | StoredContext | None:
    """
    Read what a row says about a failure.

    :return: an entry of the ledger, or why a task has failed that lost no worker; None for rows about
        something else, and of another version
    """
    if event == TASK_FAILURE_EVENT:
        return _read_stored(extra)
    return _read_entry(extra) if event in LEDGER_EVENTS else None


def _worker_event(at: datetime | None, try_number: int, event: str, extra: str | None) -> WorkerEvent:
    if event == LAUNCH_HELD_EVENT:
        return WorkerEvent(at, try_number, event, None, held=HeldLaunch.from_json(extra))
    read = read_row(event, extra)
    if isinstance(read, StoredContext):
        return WorkerEvent(at, try_number, event, None, read.context)
    return WorkerEvent(at, try_number, event, read)


@lru_cache(maxsize=4_096)
def _read_entry(extra: str | None) -> LedgerEntry | None:
    """
    Read a row, once for several answers: rows do not change, and nobody changes an entry.

    That is two thirds of the processor time of an answer about thousands of failures.
    """
    return LedgerEntry.from_json(extra)


@lru_cache(maxsize=4_096)
def _read_stored(extra: str | None) -> StoredContext | None:
    """Read a row, once for several answers, as the ledger's are."""
    return StoredContext.from_json(extra)


def _newest(
    events: Collection[str], since: datetime, until: datetime, dag_ids: Collection[str] | None, limit: int
) -> Any:
    """Select the newest rows of a time, and one more than may be shown."""
    conditions: list[ColumnElement[bool]] = [
        Log.event.in_(events),
        Log.dttm >= since,
        Log.dttm < until,
        Log.try_number.is_not(None),
    ]
    if dag_ids is not None:
        conditions.append(Log.dag_id.in_(list(dag_ids)))
    columns = (Log.id, Log.dttm, *names_of_try(Log), Log.extra)
    query = select(*columns).where(*conditions).order_by(Log.dttm.desc(), Log.id.desc()).limit(limit + 1)
    return query.execution_options(**WITH_PAST_TRIES)


def _with_states(
    events: Collection[str],
    since: datetime,
    until: datetime,
    dag_ids: Collection[str] | None,
    limit: int,
    session: Session,
) -> Sequence[Any]:
    """Return the newest rows of a time, and one more, each with the state of its try."""
    row = _newest(events, since, until, dag_ids, limit).subquery().c
    stuck = exists().where(*is_try(Log, row), Log.event == _STUCK_EVENT)
    query = select(*row, _state_of_try(row), stuck).order_by(row.dttm.desc(), row.id.desc())
    return session.execute(query).all()


def _state_of_try(row: Any) -> ColumnElement[str | None]:
    """
    Return the state of a row's try, if its task instance is still there.

    As scalars, and not as a join: each is a look-up by a unique key, for a bounded number of rows, where a
    plan for a join may read the table of all task instances.
    """
    states = [
        select(model.state).where(*is_try(model, row), *conditions).scalar_subquery()
        # A try that has ended is a past one also while its task instance waits for the next one.
        for model, conditions in ((PastTry, IS_PAST), (TaskInstance, ()))
    ]
    return func.coalesce(*states)


def _try_rows(
    model: Any,
    place: TaskInstanceKey,
    limit: int,
    session: Session,
    *conditions: ColumnElement[bool],
) -> list[TryRow]:
    """Return the newest tries, oldest first."""
    query = select(
        model.try_number, model.state, model.hostname, model.start_date, model.end_date, model.max_tries
    ).where(*is_task_instance(model, place), *conditions)
    query = query.order_by(model.try_number.desc()).limit(limit)
    rows = session.execute(query, execution_options=WITH_PAST_TRIES if conditions else {}).all()
    return [TryRow(*row) for row in reversed(rows)]
