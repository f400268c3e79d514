# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The task instances' rows in the metadata database, as far as a launch is concerned.

Whether a worker has started is written there and nowhere else: ``queued`` means that it has not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple, cast

from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.models.taskreschedule import TaskReschedule
from airflow.utils.sqlalchemy import with_row_locks
from airflow.utils.state import TaskInstanceState
from sqlalchemy import (
    ColumnElement,
    CursorResult,
    bindparam,
    case,
    delete,
    insert,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow


class TaskInstanceChangedError(Exception):
    """A task instance's row is not what it was when it was read. Only without row locks can it be."""


class End(NamedTuple):
    """The reported end of a try."""

    ti_id: str
    """The UUID that the task instance had."""
    at: datetime | None
    """When, by the clock of the worker."""
    hostname: str | None
    """Where its worker ran; empty or None if it had not begun."""


def read_rows(ti_ids: Collection[str], *, session: Session) -> dict[str, TaskInstanceRow]:
    """Read the task instances with these UUIDs, with one query; those that are gone are left out."""
    return _rows(ti_ids, session, lock=False)


def lock_rows(ti_ids: Collection[str], *, session: Session) -> dict[str, TaskInstanceRow]:
    """Like :func:`read_rows`, with row locks; rows that somebody else has locked are left out."""
    return _rows(ti_ids, session, lock=True)


def read_ids(keys: Collection[TaskInstanceKey], *, session: Session) -> dict[TaskInstanceKey, str]:
    """Return the present UUIDs of the task instances that are in these tries."""
    found = _by_key(TaskInstance, (TaskInstance.id,), keys, session)
    return {key: str(ti_id) for key, (ti_id,) in found.items()}


def read_restarting(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, int | None]:
    """
    Return the tries that were cleared while they ran, and wait for the end of their worker.

    Airflow has given their task instances another UUID already, so that they are known by their keys only.

    :return: the job of the scheduler that has each
    """
    is_restarting = TaskInstance.state == TaskInstanceState.RESTARTING
    found = _by_key(TaskInstance, (TaskInstance.queued_by_job_id,), keys, session, is_restarting)
    return {key: job_id for key, (job_id,) in found.items()}


def read_former_ids(keys: Collection[TaskInstanceKey], *, session: Session) -> dict[TaskInstanceKey, str]:
    """
    Return the UUIDs that tries had before they were cleared, or tried again.

    Airflow writes them down with the first end of a try, and gives the task instance another one.
    """
    return {key: end.ti_id for key, end in read_ends(keys, session=session).items()}


def read_ends(keys: Collection[TaskInstanceKey], *, session: Session) -> dict[TaskInstanceKey, End]:
    """Return how tries have ended that were reported to have, as Airflow has written it down first."""
    past = TaskInstanceHistory
    found = _by_key(past, (past.task_instance_id, past.end_date, past.hostname), keys, session)
    return {key: End(str(ti_id), at, hostname) for key, (ti_id, at, hostname) in found.items()}


def read_past(ti_ids: Collection[str], *, session: Session) -> set[str]:
    """Return which of these UUIDs are of tries that have ended."""
    if not ti_ids:
        return set()
    past = TaskInstanceHistory.task_instance_id
    return {str(ti_id) for ti_id in session.scalars(select(past).where(past.in_(typed_ids(ti_ids, past))))}


def read_trace_carriers(ti_ids: Collection[str], *, session: Session) -> dict[str, dict[str, str]]:
    """
    Return the places of task instances in their traces (W3C trace context), by their UUIDs.

    One that was cleared, or waits for its next try, is found in the history by the UUID that it had.
    """
    found: dict[str, dict[str, str]] = {}
    if not ti_ids:
        return found
    for id_, carrier in (
        (TaskInstanceHistory.task_instance_id, TaskInstanceHistory.context_carrier),
        (TaskInstance.id, TaskInstance.context_carrier),
    ):
        rows = session.execute(select(id_, carrier).where(id_.in_(typed_ids(ti_ids, id_))))
        found |= {str(ti_id): dict(value) for ti_id, value in rows if value}
    return found


def refresh_queued(ti_ids: Collection[str], *, at: datetime, session: Session) -> None:
    """Begin anew the time that the stuck-in-queued handler counts, for task instances that wait again."""
    _update(ti_ids, TaskInstanceState.QUEUED, {"queued_dttm": at}, session)


def begin_queued_anew(ti_ids: Collection[str], job_id: int | None, *, at: datetime, session: Session) -> None:
    """
    Like :func:`refresh_queued`, for those that a scheduler still has queued and nobody has locked.

    :param job_id: of that scheduler
    """
    rows = lock_rows(ti_ids, session=session)
    queued = {row.ti_id for row in rows.values() if row.queued_by_job_id == job_id}
    refresh_queued(queued, at=at, session=session)


def reschedule(ti_ids: Collection[str], job_id: int | None, *, at: datetime, session: Session) -> None:
    """
    Hand queued task instances back to the scheduler, which queues them again in the same try.

    These are the columns that Airflow's scheduler sets when it re-schedules a task stuck in queued.
    """
    if ti_ids:
        session.execute(
            update(TaskInstance)
            .where(
                TaskInstance.id.in_(typed_ids(ti_ids)),
                TaskInstance.state == TaskInstanceState.QUEUED,
                TaskInstance.queued_by_job_id == job_id,
            )
            .values(
                state=TaskInstanceState.SCHEDULED,
                queued_dttm=None,
                queued_by_job_id=None,
                scheduled_dttm=at,
            )
            .execution_options(synchronize_session=False)
        )


def run_again(new_ids: Mapping[str, str], *, at: datetime, session: Session) -> None:
    """
    Queue running task instances again, in the same try and under new UUIDs.

    A worker knows its task instance by the UUID, and its token is good for that one only. So whatever the
    worker before still reports about its run, it is about a task instance that does not exist.

    The rows stay this scheduler's, and keep what their next start depends on: the deferral that a worker
    has resumed, and the time since which a sensor has been rescheduled.

    :param new_ids: by the present UUIDs; the rows are locked
    :raises TaskInstanceChangedError: if one does not run any more
    """
    past = TaskReschedule.__table__
    are_theirs = past.c.ti_id.in_(typed_ids(new_ids, TaskReschedule.ti_id))
    reschedules = session.execute(select(past).where(are_theirs).order_by(past.c.id)).mappings().all()
    if reschedules:
        # The foreign key does not follow a change of the UUID. One by one, and none if there is none: MySQL
        # waits for the lock of each row that a DELETE looks at, and may look at all.
        is_it = past.c.id == bindparam("its_id")
        session.execute(delete(past).where(is_it), [{"its_id": row["id"]} for row in reschedules])
    values = {
        "id": _mapped(new_ids),
        "state": TaskInstanceState.QUEUED,
        "queued_dttm": at,
        "hostname": "",
        "pid": None,
        "external_executor_id": None,
        "last_heartbeat_at": None,
    }
    if _update(new_ids, TaskInstanceState.RUNNING, values, session) != len(new_ids):
        raise TaskInstanceChangedError(f"one of {sorted(new_ids)} does not run any more")
    if reschedules:
        (kind,) = {type(row["ti_id"]) for row in reschedules}
        session.execute(
            insert(past), [{**row, "ti_id": kind(new_ids[str(row["ti_id"])])} for row in reschedules]
        )


def forbid_retries(
    ti_ids: Collection[str], state: TaskInstanceState = TaskInstanceState.QUEUED, *, session: Session
) -> None:
    """
    Take the retries that they have left from task instances which are to fail for good.

    :param state: in which they still have to be
    """
    _update(ti_ids, state, {"max_tries": TaskInstance.try_number - 1}, session)


def try_again(ti_ids: Collection[str], *, session: Session) -> None:
    """
    Have task instances that wait for their next try begin it at once, and give them one more.

    The try that has ended then costs them none, as if they were cleared.

    :param ti_ids: of rows that are locked
    :raises TaskInstanceChangedError: if one does not wait for its next try any more
    """
    values = {"state": None, "max_tries": TaskInstance.max_tries + 1}
    if _update(ti_ids, TaskInstanceState.UP_FOR_RETRY, values, session) != len(ti_ids):
        raise TaskInstanceChangedError(f"one of {sorted(ti_ids)} does not wait for its next try any more")


def _by_key(
    model: Any,
    values: tuple[Any, ...],
    keys: Collection[TaskInstanceKey],
    session: Session,
    *conditions: Any,
) -> dict[TaskInstanceKey, tuple[Any, ...]]:
    """Return what some columns say of tries that are known by their keys, with one query."""
    if not keys:
        return {}
    columns = (model.dag_id, model.task_id, model.run_id, model.try_number, model.map_index)
    query = select(*columns, *values).where(tuple_(*columns).in_([tuple(key) for key in keys]), *conditions)
    return {TaskInstanceKey(*row[:5]): tuple(row[5:]) for row in session.execute(query)}


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
    ti = TaskInstance
    query = select(
        ti.id,
        ti.dag_id,
        ti.task_id,
        ti.run_id,
        ti.try_number,
        ti.map_index,
        ti.state,
        ti.queued_by_job_id,
        ti.hostname,
    ).where(ti.id.in_(typed_ids(ti_ids)))
    if lock:
        query = with_row_locks(query, session=session, of=ti, skip_locked=True)
    rows = (
        TaskInstanceRow(str(row[0]), TaskInstanceKey(*row[1:6]), *row[6:]) for row in session.execute(query)
    )
    return {row.ti_id: row for row in rows}


def typed_ids(ti_ids: Collection[str], column: Any = TaskInstance.id) -> list[Any]:
    """Return UUIDs as a column has them."""
    # It is a string up to Airflow 3.1 and a UUID from 3.2 on; a value of the other type would
    # either be refused or keep the database from using the primary key.
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = str
    return [kind(ti_id) for ti_id in ti_ids]
