# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Failures that no executor has decided about, in Airflow's audit log: what a person or the scheduler has done.

The ledger has the others.
"""

from __future__ import annotations

import json
from typing import Any

from airflow.models.log import Log
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
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


def read(ti: Any) -> tuple[ExecutionContext | None, bool]:
    """
    Return why a try has failed, if its executor or worker has stored that; and whether its heartbeat has
    timed out.

    :param ti: the task instance, as a row
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
    """
    key = _key(ti)
    with create_session(scoped=False) as session:
        # By the number of the try: Airflow may have given the task instance its next UUID already.
        if stored := read_failure(key, session=session):
            return stored.context, False
        is_silent = exists().where(
            Log.dag_id == key.dag_id,
            Log.task_id == key.task_id,
            Log.run_id == key.run_id,
            Log.map_index == key.map_index,
            Log.try_number == key.try_number,
            Log.event == _HEARTBEAT_TIMEOUT,
        )
        return None, bool(session.scalar(select(is_silent)))


def _key(ti: Any) -> TaskInstanceKey:
    return TaskInstanceKey(ti.dag_id, ti.task_id, ti.run_id, ti.try_number, ti.map_index)
