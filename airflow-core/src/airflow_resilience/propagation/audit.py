# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Failures that no executor has decided about, in Airflow's audit log: what a person or the scheduler has done.

The ledger has the others.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import exists, select

from airflow_resilience.context import ExecutionContext
from airflow_resilience.propagation.database import read_failure
from airflow_resilience.propagation.stored import StoredContext

EVENT = "task instance failed"
"""``Log.event`` of a row; ``Log.extra`` is the JSON text of a :class:`.StoredContext`."""

_HEARTBEAT_TIMEOUT = "heartbeat timeout"
"""``Log.event`` of Airflow's own row, which it writes before it has a task fail."""


def record(ti: Any, context: ExecutionContext) -> None:
    """
    Write down why a task instance has failed, and commit.

    :param ti: the task instance, as a row
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take it
    """
    extra = json.dumps(StoredContext(str(ti.id), ti.try_number, context).to_dict())
    # Not the session of the task instance: it is in the middle of a transaction of Airflow.
    with create_session(scoped=False) as session:
        session.add(Log(event=EVENT, task_instance=_key(ti), extra=extra))


class Known(NamedTuple):
    """What the database says about a failure."""

    stored: ExecutionContext | None = None
    """What the executor or the worker has stored. Then the others are not looked up."""
    is_silent: bool = False
    """Whether the heartbeat has timed out."""
    was_cleared: bool = False
    """Whether the try was cleared while it ran."""


def read(ti: Any) -> Known:
    """
    Return what is known of why a try has failed.

    :param ti: the task instance, as a row
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
    """
    key = _key(ti)
    with create_session(scoped=False) as session:
        # By the number of the try: Airflow may have given the task instance its next UUID already.
        if stored := read_failure(key, session=session):
            return Known(stored.context)
        is_silent = exists().where(
            Log.dag_id == key.dag_id,
            Log.task_id == key.task_id,
            Log.run_id == key.run_id,
            Log.map_index == key.map_index,
            Log.try_number == key.try_number,
            Log.event == _HEARTBEAT_TIMEOUT,
        )
        # As it was committed: Airflow has changed the row by now.
        state = session.scalar(select(TaskInstance.state).where(TaskInstance.id == ti.id))
        return Known(
            is_silent=bool(session.scalar(select(is_silent))),
            was_cleared=state == TaskInstanceState.RESTARTING,
        )


def _key(ti: Any) -> TaskInstanceKey:
    return TaskInstanceKey(ti.dag_id, ti.task_id, ti.run_id, ti.try_number, ti.map_index)
