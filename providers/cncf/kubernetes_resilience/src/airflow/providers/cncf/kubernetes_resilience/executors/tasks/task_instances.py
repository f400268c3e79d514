# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The task instances' rows in the metadata database, as far as a launch is concerned.

Whether a worker has started is written there and nowhere else: ``queued`` means that it has not.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from airflow.models.dag import DagTag
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.sqlalchemy import with_row_locks
from airflow.utils.state import TaskInstanceState
from sqlalchemy import case, func, literal, or_, select, tuple_, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import ColumnElement

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Try
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.dependents import following, typed_ids
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    TaskSnapshot,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import shared
from airflow_resilience import ledger
from airflow_resilience.decision import Action
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.past_tries import IS_PAST, PAST_TRY_ID, WITH_PAST_TRIES, PastTry
from airflow_resilience.propagation.database import write_failures
from airflow_resilience.retry_policy.selection import TaskProfile, read_task_options

log = logging.getLogger(__name__)

_KEY_COLUMNS = (
    TaskInstance.dag_id,
    TaskInstance.task_id,
    TaskInstance.run_id,
    TaskInstance.try_number,
    TaskInstance.map_index,
)
_ROW_COLUMNS = (
    TaskInstance.id,
    *_KEY_COLUMNS,
    TaskInstance.state,
    TaskInstance.queued_by_job_id,
    TaskInstance.hostname,
    TaskInstance.scheduled_dttm,
)
"""The columns of :func:`_row`."""

_ENDED = (Standing.GONE, Standing.OVER)


class TaskInstanceChangedError(Exception):
    """A task instance's row is not what it was when it was read. Only without row locks can it be."""


def read_rows(ti_ids: Collection[str], *, session: Session) -> dict[str, TaskInstanceRow]:
    """Read the task instances with these UUIDs, in this order, with one query; gone ones are skipped."""
    return _rows(ti_ids, session, lock=False)


def lock_rows(ti_ids: Collection[str], *, session: Session) -> dict[str, TaskInstanceRow]:
    """Like :func:`read_rows`, with row locks; rows that another transaction has locked are skipped."""
    return _rows(ti_ids, session, lock=True)


def read_snapshots(tries: Collection[Try], *, session: Session) -> dict[Try, TaskSnapshot]:
    """
    Read what the database says about these task instances, with one query, or two if some are gone.

    :param tries: each with its key and the UUID that its pod carries; None where a pod does not say
    """
    rows = read_rows({ti_id for _, ti_id in tries if ti_id}, session=session)
    gone = {key for key, ti_id in tries if key and ti_id not in rows}
    # Airflow has given those another UUID already that were cleared while they ran.
    others = read_by_key(gone, session=session)
    restarting = {key: row for key, row in others.items() if row.state == TaskInstanceState.RESTARTING}
    tasks = {}
    for key, ti_id in tries:
        row = rows.get(ti_id or "")
        tasks[key, ti_id] = TaskSnapshot(key, row, None if row else restarting.get(key))
    return tasks


def read_over(tasks: Mapping[Try, TaskSnapshot], *, session: Session) -> set[Try]:
    """
    Return which tries have come to their end, whichever scheduler has had them.

    Without a row only Airflow's history says so, or the ledger, if the task instance ran again under another
    UUID after a loss: it may be another deployment's.

    :param tasks: the answer of :func:`read_snapshots`
    """
    # A task instance that was cleared or tried again has another UUID since.
    changed = {ti_id for (_, ti_id), task in tasks.items() if ti_id and task.row is None}
    query = select(PAST_TRY_ID).where(PAST_TRY_ID.in_(typed_ids(changed, PAST_TRY_ID)), *IS_PAST)
    found = session.scalars(query, execution_options=WITH_PAST_TRIES) if changed else ()
    past = set(map(str, found))
    unknown = {key for (key, ti_id), task in tasks.items() if key and task.row is None and ti_id not in past}
    past.update(*ledger.read_replaced_ids(unknown, session=session).values())
    return {
        (key, ti_id)
        for (key, ti_id), task in tasks.items()
        if ti_id in past or (key and task.row and task.standing(task.owner) in _ENDED)
    }


def read_by_key(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey | None, TaskInstanceRow]:
    """Read the task instances that are in these tries, in this order, whatever their UUIDs are."""
    found = _by_key(TaskInstance, _ROW_COLUMNS, keys, session)
    return {key: _row(values) for key, values in found.items()}


def read_all_restarting(job_id: int | None, *, session: Session) -> list[TaskInstanceKey]:
    """Return a scheduler's tries that were cleared while they ran, and wait for the end of their worker."""
    is_restarting = TaskInstance.state == TaskInstanceState.RESTARTING
    query = select(*_KEY_COLUMNS).where(is_restarting, TaskInstance.queued_by_job_id == job_id)
    return [TaskInstanceKey(*row) for row in session.execute(query)]


def read_former_ids(keys: Collection[TaskInstanceKey], *, session: Session) -> dict[TaskInstanceKey, str]:
    """
    Return the UUIDs that tries had before they were cleared, or tried again.

    Airflow writes them down with the first end of a try, and gives the task instance another one.
    """
    found = _by_key(PastTry, (PAST_TRY_ID,), keys, session, *IS_PAST)
    return {key: str(ti_id) for key, (ti_id,) in found.items()}


def read_trace_carriers(ti_ids: Collection[str], *, session: Session) -> dict[str, dict[str, str]]:
    """
    Return the places of task instances in their traces (W3C trace context), by their UUIDs.

    A task instance that was cleared, or waits for its next try, is found in the history by its earlier UUID.
    """
    found: dict[str, dict[str, str]] = {}
    if not ti_ids:
        return found
    for id_, carrier in (
        (PAST_TRY_ID, PastTry.context_carrier),
        (TaskInstance.id, TaskInstance.context_carrier),
    ):
        query = select(id_, carrier).where(id_.in_(typed_ids(ti_ids, id_)))
        rows = session.execute(query, execution_options=WITH_PAST_TRIES)
        found |= {str(ti_id): dict(value) for ti_id, value in rows if value}
    return found


def refresh_queued(ti_ids: Collection[str], *, session: Session) -> None:
    """Begin anew the time that the stuck-in-queued handler counts, for task instances that wait again."""
    _update(ti_ids, TaskInstanceState.QUEUED, {"queued_dttm": datetime.now(UTC)}, session)


def read_scheduled_since(since: datetime, ti_ids: Collection[str], *, session: Session) -> set[str]:
    """Return those of the task instances that Airflow has scheduled since then, as far as is known."""
    is_recent = or_(TaskInstance.scheduled_dttm.is_(None), TaskInstance.scheduled_dttm > since)
    found = select(TaskInstance.id).where(TaskInstance.id.in_(typed_ids(ti_ids)), is_recent)
    return {str(ti_id) for ti_id in session.scalars(found)}


def reschedule(ti_ids: Collection[str], *, session: Session) -> None:
    """
    Hand queued task instances back to the scheduler, which queues them again in the same try.

    Airflow's scheduler sets the same columns when it re-schedules a task stuck in queued.

    :param ti_ids: their rows are locked
    """
    values = {
        "state": TaskInstanceState.SCHEDULED,
        "queued_dttm": None,
        "queued_by_job_id": None,
        "scheduled_dttm": datetime.now(UTC),
    }
    _update(ti_ids, TaskInstanceState.QUEUED, values, session)


def run_again(new_ids: Mapping[str, str], *, session: Session) -> None:
    """
    Queue running task instances again, in the same try and under new UUIDs.

    A worker knows its task instance by the UUID, and its token is good for that one only. So whatever the
    worker before still reports about its run, it is about a task instance that does not exist.

    The rows stay this scheduler's, and keep what their next start depends on: the deferral that a worker has
    resumed, and the start of a rescheduled sensor's wait.

    :param new_ids: by the present UUIDs; the rows are locked
    :raises TaskInstanceChangedError: if one does not run any more
    """
    now = datetime.now(UTC)
    values = {
        "id": _mapped(new_ids),
        "state": TaskInstanceState.QUEUED,
        "scheduled_dttm": now,
        "queued_dttm": now,
        "hostname": "",
        "pid": None,
        "external_executor_id": None,
        "last_heartbeat_at": None,
    }
    with following(new_ids, session=session):
        if _update(new_ids, TaskInstanceState.RUNNING, values, session) != len(new_ids):
            raise TaskInstanceChangedError(f"one of {sorted(new_ids)} does not run any more")


def write_failed(
    failed: Mapping[TaskInstanceKey, LedgerEntry], state: TaskInstanceState, *, session: Session
) -> None:
    """
    Write down why tries have failed, and that task instances which are to fail for good have no retries.

    :param failed: what was decided about each; the rows are locked
    :param state: in which those still have to be
    """
    for_good = {entry.ti_id for entry in failed.values() if entry.decision.action is Action.FAIL}
    forbid_retries(for_good, state, session=session)
    write_failures({key: (entry.ti_id, entry.context) for key, entry in failed.items()}, session=session)


def forbid_retries(ti_ids: Collection[str], state: TaskInstanceState, *, session: Session) -> None:
    """Remove the remaining retries of task instances in a state."""
    _update(ti_ids, state, {"max_tries": TaskInstance.try_number - 1}, session)


def _by_key(
    model: Any,
    values: tuple[Any, ...],
    keys: Collection[TaskInstanceKey],
    session: Session,
    *conditions: Any,
) -> dict[TaskInstanceKey, tuple[Any, ...]]:
    """Return what some columns say of tries that are known by their keys, in this order, with one query."""
    if not keys:
        return {}
    columns = (model.dag_id, model.task_id, model.run_id, model.try_number, model.map_index)
    query = select(*columns, *values).where(tuple_(*columns).in_([tuple(key) for key in keys]), *conditions)
    options = WITH_PAST_TRIES if model is PastTry else {}
    rows = session.execute(query, execution_options=options)
    found = {TaskInstanceKey(*row[:5]): tuple(row[5:]) for row in rows}
    return {key: found[key] for key in keys if key in found}


def _update(
    ti_ids: Collection[str], state: TaskInstanceState, values: Mapping[str, Any], session: Session
) -> int:
    """Change those that are in a state; return how many that were."""
    if not ti_ids:
        return 0
    result = session.execute(
        update(TaskInstance)
        .where(TaskInstance.id.in_(typed_ids(ti_ids)), TaskInstance.state == state)
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return cast("CursorResult[Any]", result).rowcount


def _mapped(new_ids: Mapping[str, str]) -> ColumnElement[Any]:
    """Return the new UUID of each task instance, so that one statement changes them all."""
    column = TaskInstance.id
    pairs = zip(typed_ids(new_ids), typed_ids(new_ids.values()), strict=True)
    # With the column among its results. Else PostgreSQL would take it for a text.
    return case(*((column == old, literal(new, column.type)) for old, new in pairs), else_=column)


def _rows(ti_ids: Collection[str], session: Session, *, lock: bool) -> dict[str, TaskInstanceRow]:
    if not ti_ids:
        return {}
    query = select(*_ROW_COLUMNS).where(TaskInstance.id.in_(typed_ids(ti_ids)))
    if lock:
        query = with_row_locks(query, session=session, of=TaskInstance, skip_locked=True)
    found = {row.ti_id: row for row in map(_row, session.execute(query))}
    return {ti_id: found[ti_id] for ti_id in ti_ids if ti_id in found}


def _row(values: Sequence[Any]) -> TaskInstanceRow:
    ti_id, dag_id, task_id, run_id, try_number, map_index, *rest = values
    # An adopted task instance keeps its key, and thousands of keys have the same few names.
    key = TaskInstanceKey(shared(dag_id), shared(task_id), shared(run_id), try_number, map_index)
    return TaskInstanceRow(str(ti_id), key, *rest)


def read_last_beginning(ti_ids: Collection[str], at: datetime, *, session: Session) -> datetime | None:
    """
    Return the last start among the running workers, by the clock of the worker that has started last.

    :param ti_ids: of whose workers
    :param at: now; a clock that is ahead would have its worker begin again and again
    """
    begun = select(func.max(TaskInstance.start_date)).where(
        TaskInstance.id.in_(typed_ids(ti_ids)),
        TaskInstance.state == TaskInstanceState.RUNNING,
        TaskInstance.start_date <= at,
    )
    return session.scalar(begun)


def read_profiles(ti_ids: Collection[str], *, session: Session) -> dict[str, TaskProfile]:
    """
    Read the profiles of task instances, by their UUIDs, with two queries.

    An invalid option of a task is logged and ignored: the task is not lost for it.
    """
    if not ti_ids:
        return {}
    ti = TaskInstance
    rows = session.execute(
        select(ti.id, ti.dag_id, ti.task_id, ti.queue, ti.pool, ti.executor_config).where(
            ti.id.in_(typed_ids(ti_ids))
        )
    ).all()
    tags = _tags({row.dag_id for row in rows}, session)
    return {
        str(id_): _profile(dag_id, task_id, queue, pool, tags[dag_id], executor_config)
        for id_, dag_id, task_id, queue, pool, executor_config in rows
    }


def _profile(
    dag_id: str, task_id: str, queue: str, pool: str, tags: frozenset[str], executor_config: object
) -> TaskProfile:
    options = read_task_options(executor_config)
    for problem in options.problems:
        log.warning("executor_config of %s.%s is ignored in part: %s", dag_id, task_id, problem)
    return TaskProfile(dag_id=dag_id, task_id=task_id, queue=queue, pool=pool, dag_tags=tags, options=options)


def _tags(dag_ids: Collection[str], session: Session) -> dict[str, frozenset[str]]:
    rows = session.execute(select(DagTag.dag_id, DagTag.name).where(DagTag.dag_id.in_(dag_ids))).all()
    return {dag_id: frozenset(row.name for row in rows if row.dag_id == dag_id) for dag_id in dag_ids}
