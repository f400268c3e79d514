# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Queries of the audit log for people: the failures of a period, and everything about one task instance.

The ledger has failed workers. Tasks that failed without losing a worker have rows and a count of their own.

Every query is bounded, and its result says whether rows are missing. The indexes are Airflow's own:
``idx_log_dttm`` and ``idx_log_event`` for a time, ``idx_log_task_instance`` for a task instance, and the
unique keys of ``task_instance`` and ``task_instance_history``. Airflow 3.1 to 3.3 have the same indexes.
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
from airflow_resilience.ledger import EXECUTION_FAILURE_EVENT, LAUNCH_FAILURE_EVENT, LAUNCH_HELD_EVENT
from airflow_resilience.ledger_entries import HeldLaunch, LedgerEntry
from airflow_resilience.outages import Dependency
from airflow_resilience.past_tries import IS_PAST, WITH_PAST_TRIES, PastTry
from airflow_resilience.propagation.audit import EVENT as TASK_FAILURE_EVENT
from airflow_resilience.propagation.stored import StoredContext

F = TypeVar("F")

LEDGER_EVENTS = (LAUNCH_FAILURE_EVENT, EXECUTION_FAILURE_EVENT)
"""``Log.event`` of the ledger's rows."""

FAILURE_EVENTS = (*LEDGER_EVENTS, TASK_FAILURE_EVENT)
"""``Log.event`` of all rows about failures."""

OUTAGE_MEMORY = timedelta(minutes=10)
"""Age up to which a failure proves an outage: a probe fails at least every other minute."""

_STUCK_EVENT = "stuck in queued tries exceeded"
"""``Log.event`` of Airflow's own row about a try that was queued for too long; the try fails next."""

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
"""States that a worker reports. Airflow's API server writes them to the audit log, from 3.2 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFailure:
    """A failed worker as the ledger has it, and the present state of its try."""

    row_id: int
    """Of the row in the audit log. A later failure of a try has a higher id."""
    at: datetime
    """Time of the decision, with a time zone."""
    key: TaskInstanceKey
    entry: LedgerEntry
    try_state: str | None
    """State of the try: of its end, or the present one. None for a try to be scheduled, or a removed one."""
    was_stuck: bool = False
    """Whether Airflow has failed the try, queued for too long each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """A task that has failed without losing its worker, and the reason."""

    at: datetime
    """Time of the row, with a time zone."""
    key: TaskInstanceKey
    context: ExecutionContext


@dataclass(frozen=True, slots=True)
class Failures(Generic[F]):
    """The failures of a period."""

    found: Sequence[F]
    """Newest first."""
    is_cut: bool
    """Whether older failures of the period are missing."""
    unreadable: int
    """Number of rows of another version, which are missing."""


class WorkerEvent(NamedTuple):
    """A row of the audit log about a task instance."""

    at: datetime | None
    try_number: int
    event: str
    content: LedgerEntry | StoredContext | HeldLaunch | None
    """None for a report of a worker, and for a row of another version."""


class TryRow(NamedTuple):
    """A try as Airflow has it."""

    try_number: int
    state: str | None
    hostname: str | None
    """Of its last worker; empty or None before the first start."""
    started_at: datetime | None
    ended_at: datetime | None
    max_tries: int | None


class RecordedOutage(NamedTuple):
    """An outage, as rows of the audit log show it."""

    dependency: Dependency
    since: datetime
    """With a time zone."""
    held: int
    """Number of task instances with held launches."""
    context: ExecutionContext
    """Context of the newest launch failure."""


class TaskInstanceEvents(NamedTuple):
    """Everything about one task instance, of all its tries."""

    events: Sequence[WorkerEvent]
    """Oldest first."""
    past: Sequence[TryRow]
    """Ended tries before the present one."""
    present: TryRow
    is_cut: bool
    """Whether older events are missing."""


def read_failures(
    since: datetime, until: datetime, *, dag_ids: Collection[str] | None, limit: int, session: Session
) -> Failures[RecordedFailure]:
    """
    Read the newest failures of workers in a period.

    :param since: with a time zone, inclusive
    :param until: with a time zone, exclusive
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
    Return unavailable dependencies, each with its newest failure.

    A dependency is unavailable if the try of its newest conclusive failure still waits. A failure without a
    known outage is conclusive only after its try has begun.

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
    Read the outages, with the number of held launches, most held launches first.

    :param at: present time, with a time zone
    :param dag_ids: only failures of these Dags; None for all
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
    """Read the newest failures of tasks without a lost worker, as :func:`read_failures` does."""
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
    Read everything about the launches of a task instance; None without such a task instance.

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
        WorkerEvent(at, cast("int", number), event, read_row(event, extra))
        for at, number, event, extra in reversed(rows[:limit])
    ]
    return TaskInstanceEvents(events, past, present[0], len(rows) > limit)


def read_row(event: str, extra: str | None) -> LedgerEntry | StoredContext | HeldLaunch | None:
    """
    Read a row about a failure, or about a held launch.

    :return: an entry of the ledger, the context of a failure without a lost worker, or a held launch; None
        for rows about something else, and of another version
    """
    if event == TASK_FAILURE_EVENT:
        return _read_stored(extra)
    if event == LAUNCH_HELD_EVENT:
        return HeldLaunch.from_json(extra)
    return _read_entry(extra) if event in LEDGER_EVENTS else None


_read_entry = lru_cache(maxsize=4_096)(LedgerEntry.from_json)
"""Reads a row once for several answers: rows and entries do not change.

Reading takes two thirds of the processor time of an answer about thousands of failures.
"""

_read_stored = lru_cache(maxsize=4_096)(StoredContext.from_json)
"""Reads a row once for several answers."""


def _newest(
    events: Collection[str], since: datetime, until: datetime, dag_ids: Collection[str] | None, limit: int
) -> Any:
    """Select the newest rows of a period, and one more than the limit."""
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
    """Return the newest rows of a period, and one more, each with the state of its try."""
    row = _newest(events, since, until, dag_ids, limit).subquery().c
    stuck = exists().where(*is_try(Log, row), Log.event == _STUCK_EVENT)
    query = select(*row, _state_of_try(row), stuck).order_by(row.dttm.desc(), row.id.desc())
    return session.execute(query).all()


def _state_of_try(row: Any) -> ColumnElement[str | None]:
    """
    Return the state of a row's try; None without its task instance.

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
