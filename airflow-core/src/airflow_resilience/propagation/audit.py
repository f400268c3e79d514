# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Failures without a policy's decision, in Airflow's audit log: failures by the task itself, a person or the
scheduler, and tasks without a pod.

The ledger has all other failures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import with_row_locks
from airflow.utils.state import TaskInstanceState
from sqlalchemy import exists, select, tuple_
from sqlalchemy.orm import Session

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action
from airflow_resilience.keys import is_try, names_of_try
from airflow_resilience.ledger import EXECUTION_FAILURE_EVENT, LAUNCH_FAILURE_EVENT
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.propagation import database
from airflow_resilience.propagation.database import read_failure, read_failures_of_workers, write_failures
from airflow_resilience.propagation.stored import StoredContext

EVENT = "task instance failed"
"""``Log.event`` of a row; ``Log.extra`` is the JSON text of a :class:`.StoredContext`."""

_CLEARED = ExecutionContext(
    StateChangeCategory.USER_ACTION,
    StateChangeReason.MANUAL_CLEAR,
    ContextSource.API,
    {MetadataKey.STATE.value: TaskInstanceState.RESTARTING.value},
)
"""Context of a running task that is cleared; its worker asks Airflow, and gets the same."""

_HEARTBEAT_TIMEOUT = "heartbeat timeout"
"""``Log.event`` of Airflow's own row about a missing heartbeat; the try fails next."""


def record(ti: Any, context: ExecutionContext) -> None:
    """
    Record the context of a failed task instance, and commit.

    :param ti: the task instance, as a row
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take it
    """
    # The session of the task instance is in the middle of a transaction of Airflow.
    with create_session(scoped=False) as session:
        _add(ti.key, StoredContext(str(ti.id), ti.try_number, context), session)


def record_unlaunched(key: TaskInstanceKey, context: ExecutionContext) -> None:
    """
    Record why no pod could be made for a task, also for its callbacks, and commit. The task fails next.

    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take it
    """
    with create_session(scoped=False) as session:
        queued = select(TaskInstance.id).where(
            *is_try(TaskInstance, key), TaskInstance.state == TaskInstanceState.QUEUED
        )
        # The lock keeps the row from removal, and the task from a launch by another scheduler. The
        # scheduler's loop does not wait for a locked row: the reason is then not stored.
        ti_id = session.scalar(with_row_locks(queued, session=session, of=TaskInstance, skip_locked=True))
        if ti_id is None:
            return
        write_failures({key: (str(ti_id), context)}, session=session)
        _add(key, StoredContext(str(ti_id), key.try_number, context), session)


def record_reported(ended: Mapping[TaskInstanceKey, str], *, session: Session) -> None:
    """
    Record the reasons that workers have stored for failed tries, each once.

    :param ended: tries whose worker has ended without a decision, each with the task instance's UUID at that
        time
    """
    _add_new(_reported(ended, session), session)


def record_cleared(cleared: Mapping[TaskInstanceKey, str], *, session: Session) -> None:
    """
    Record tries that were cleared while running, each once, also for listeners and callbacks.

    A reason that the worker has stored takes precedence. A worker that was killed has stored none.

    :param cleared: tries with an ended worker, each with the UUID of its task instance at that time; the task
        instances' rows are locked
    """
    reported = _reported(cleared, session)
    silent = {key: (ti_id, _CLEARED) for key, ti_id in cleared.items() if key not in reported}
    write_failures(silent, session=session)
    stored = {key: StoredContext(ti_id, key.try_number, why) for key, (ti_id, why) in silent.items()}
    _add_new(reported | stored, session)


def _reported(ended: Mapping[TaskInstanceKey, str], session: Session) -> dict[TaskInstanceKey, StoredContext]:
    """Return the reasons of ended tries for which only their worker has stored one."""
    found = read_failures_of_workers(ended, session=session)
    return {key: stored for key, stored in found.items() if stored.ti_id == ended[key]}


def _add_new(new: Mapping[TaskInstanceKey, StoredContext], session: Session) -> None:
    if not new:
        return
    known = session.scalars(
        select(Log.extra).where(tuple_(*names_of_try(Log)).in_(list(new)), Log.event == EVENT)
    )
    recorded = {stored.ti_id for extra in known if (stored := StoredContext.from_json(extra))}
    for key, stored in new.items():
        if stored.ti_id not in recorded:
            _add(key, stored, session)


class Known(NamedTuple):
    """The facts about a failure in the database."""

    stored: ExecutionContext | None = None
    """Context that the executor or the worker has stored; the other fields are then not looked up."""
    is_silent: bool = False
    """Whether the heartbeat has timed out."""
    was_cleared: bool = False
    """Whether the try was cleared while it ran."""


def read(ti: Any) -> Known:
    """
    Return the facts about the failure of a try.

    :param ti: the task instance, as a row
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
    """
    with create_session(scoped=False) as session:
        # The number of the try is compared: Airflow may have given the task instance its next UUID already.
        if stored := read_failure(ti.key, session=session):
            return Known(stored.context)
        is_silent = exists().where(*is_try(Log, ti), Log.event == _HEARTBEAT_TIMEOUT)
        # The query returns the committed state: Airflow has changed the object by now.
        state = session.scalar(select(TaskInstance.state).where(TaskInstance.id == ti.id))
        return Known(
            is_silent=bool(session.scalar(select(is_silent))),
            was_cleared=state == TaskInstanceState.RESTARTING,
        )


def read_previous_failures(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, ExecutionContext]:
    """
    Return the known failures of the tries right before these, with two queries at most. A try that succeeded
    and was cleared is no failure.

    The first worker of a try removes the XCom of the failure. After a deferral, or a sensor's rescheduling,
    the audit log is read instead.
    """
    found = database.read_previous_failures(keys, session=session)
    missing = {key for key in keys if key.try_number > 1 and key not in found}
    return found | _read_previous_rows(missing, session) if missing else found


def _read_previous_rows(
    keys: Collection[TaskInstanceKey], session: Session
) -> dict[TaskInstanceKey, ExecutionContext]:
    before = {key._replace(try_number=key.try_number - 1): key for key in keys}
    columns = names_of_try(Log)
    rows = session.execute(
        select(*columns, Log.event, Log.extra)
        .where(
            tuple_(*columns).in_(list(before)),
            Log.event.in_((EVENT, LAUNCH_FAILURE_EVENT, EXECUTION_FAILURE_EVENT)),
        )
        .order_by(Log.id)
    )
    ends = [(TaskInstanceKey._make(row[:5]), _read_end(row.event, row.extra)) for row in rows]
    # A database that ignores case finds rows of other tasks too.
    return {before[key]: context for key, context in ends if context and key in before}


def _read_end(event: str, extra: str | None) -> ExecutionContext | None:
    """Return the context of a try's end from a row; None for a row about a relaunch."""
    if event == EVENT:
        stored = StoredContext.from_json(extra)
        return stored.context if stored else None
    entry = LedgerEntry.from_json(extra)
    return entry.context if entry and entry.decision.action is not Action.RELAUNCH else None


def _add(key: TaskInstanceKey, stored: StoredContext, session: Session) -> None:
    session.add(Log(event=EVENT, task_instance=key, extra=stored.to_json()))
