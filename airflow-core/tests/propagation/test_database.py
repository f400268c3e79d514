# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A worker and several executors say why tasks have failed, at the same time, on a real database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import text

from airflow_resilience.context import ExecutionContext
from airflow_resilience.propagation.database import read_failure, read_previous_failures, write_failures
from airflow_resilience.propagation.stored import XCOM_KEY, StoredContext
from airflow_resilience.termination.exceptions import explain
from testbed.waiting import wait_for

OF_WORKER = explain(ValueError("its own"))
OF_OTHER = explain(OSError("as if another one knew"))
OF_EXECUTOR = explain(KeyError("as if an executor knew"))


def worker_says(ti, context: ExecutionContext, session) -> None:
    """Do what Airflow's API server does for a worker that stores it."""
    stored = StoredContext(str(ti.id), ti.try_number, context)
    XComModel.set(
        key=XCOM_KEY,
        value=stored.to_json(),
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        map_index=ti.map_index,
        serialize=False,
        session=session,
    )
    session.flush()


def executor_settles(key: TaskInstanceKey, ti_id: str) -> None:
    with create_session(scoped=False) as session:
        write_failures({key: (ti_id, OF_EXECUTOR)}, session=session)


def found(key: TaskInstanceKey, session) -> ExecutionContext | None:
    session.commit()
    stored = read_failure(key, session=session)
    return stored and stored.context


WAITS = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT count(*) FROM performance_schema.data_lock_waits",
}


def is_waited_for(session) -> bool:
    return bool(session.scalar(text(WAITS[session.get_bind().dialect.name])))


def test_neither_waits_for_the_other_or_fails_and_what_was_settled_is_told(queued_ti, session):
    ti = queued_ti()
    key, ti_id = ti.key, str(ti.id)
    with create_session(scoped=False) as worker, ThreadPoolExecutor(1) as executor:
        worker_says(ti, OF_WORKER, worker)
        settled = executor.submit(executor_settles, key, ti_id)
        wait_for("the executor writes", lambda: settled.done() or is_waited_for(session))
        worker.commit()
        settled.result()
    assert found(key, session) == OF_EXECUTOR


def test_a_worker_that_is_cut_off_does_not_change_what_was_settled(queued_ti, session):
    ti = queued_ti()
    executor_settles(ti.key, str(ti.id))
    worker_says(ti, OF_WORKER, session)
    assert found(ti.key, session) == OF_EXECUTOR
    later = ti.key._replace(try_number=2)
    assert read_previous_failures([later], session=session) == {later: OF_EXECUTOR}


def test_what_the_next_try_says_of_itself_is_told_of_it(queued_ti, session):
    """A loss was settled in try 1; nothing has removed that when the worker of try 2 fails."""
    ti = queued_ti()
    executor_settles(ti.key, str(ti.id))
    ti.try_number = 2
    worker_says(ti, OF_WORKER, session)
    assert found(ti.key, session) == OF_WORKER
    later = ti.key._replace(try_number=3)
    assert read_previous_failures([later], session=session) == {later: OF_WORKER}
    executor_settles(ti.key, str(ti.id))
    assert found(ti.key, session) == OF_EXECUTOR


@pytest.mark.parametrize("before", [[], [OF_WORKER]], ids=["first", "again"])
def test_no_executor_waits_for_another_one(queued_ti, session, impatient_session, before):
    tis = queued_ti(mapped=20)
    for context in before:
        write_failures({ti.key: (str(ti.id), context) for ti in tis}, session=session)
        session.commit()
    write_failures({ti.key: (str(ti.id), OF_EXECUTOR) for ti in tis[:10]}, session=session)
    write_failures({ti.key: (str(ti.id), OF_OTHER) for ti in tis[10:]}, session=impatient_session)
    impatient_session.commit()
    assert [found(ti.key, session) for ti in tis] == [OF_EXECUTOR] * 10 + [OF_OTHER] * 10
