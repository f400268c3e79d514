# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow's own listener managers, with listeners of others."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api.common.mark_tasks import set_dag_run_state_to_failed
from airflow.listeners import hookimpl
from airflow.listeners.listener import get_listener_manager as core_listener_manager
from airflow.models.dagbag import DBDagBag
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import BaseOperator
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.listener import get_listener_manager as sdk_listener_manager
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select

from airflow_resilience.context import ExecutionContext
from airflow_resilience.decision import NO_POLICY, Action, Decision
from airflow_resilience.propagation import audit, listeners, reading
from airflow_resilience.propagation.database import write_failures
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.termination.exceptions import explain

FAILED = "on_task_instance_failed_with_context"
DECISION = Decision(action=Action.RELAUNCH, policy=NO_POLICY, rule="rule", explanation="why")


class Others:
    """A listener of somebody else."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    @hookimpl
    def on_task_instance_failed_with_context(self, task_instance, error, execution_context):
        self.told.append((task_instance, error, execution_context))

    @hookimpl
    def on_task_instance_relaunched(self, task_instance_key, execution_context, decision, attempt):
        self.told.append((task_instance_key, execution_context, decision, attempt))


class Broken:
    @hookimpl
    def on_task_instance_failed_with_context(self, execution_context):
        raise RuntimeError("a listener that is broken")


class Mistaken:
    @hookimpl
    def on_task_instance_failed_with_context(self, execution_contexts):
        raise AssertionError("it asks for what there is not")


@pytest.fixture
def add() -> Iterator[Any]:
    """Give a function that adds listeners as Airflow does."""
    added: list[Any] = []

    def add(*new: Any) -> None:
        for item in new:
            for manager in (core_listener_manager(), sdk_listener_manager()):
                manager.add_listener(item)
                added.append((manager, item))

    yield add
    for manager, item in added:
        manager.pm.unregister(item)


@pytest.fixture
def fresh(monkeypatch) -> Iterator[Any]:
    """Managers that know nothing of our specifications, as in a process that has just started."""
    managers = {}
    for get in (core_listener_manager, sdk_listener_manager):
        get.cache_clear()
        managers[get] = get()
    yield managers
    for get in managers:
        get.cache_clear()


def told(others: Others) -> tuple[Any, ...]:
    (one,) = others.told
    return one


@pytest.mark.parametrize("in_worker", [True, False])
def test_a_listener_that_was_registered_before_the_specification_is_called(fresh, add, in_worker):
    others = Others()
    add(others)
    context = explain(ValueError())
    listeners.call(
        FAILED,
        in_worker=in_worker,
        previous_state=None,
        task_instance="ti",
        error=None,
        execution_context=context,
    )
    assert told(others) == ("ti", None, context)
    later = Others()
    add(later)
    listeners.call(
        "on_task_instance_relaunched",
        in_worker=in_worker,
        task_instance_key="key",
        execution_context=context,
        decision=DECISION,
        attempt=2,
    )
    assert told(later) == ("key", context, DECISION, 2)


def test_a_broken_listener_stops_nobody(fresh, add, caplog):
    others, last = Others(), Others()
    add(others, Broken(), Mistaken(), last)
    arguments = {"previous_state": None, "task_instance": "ti", "error": None, "execution_context": None}
    for _ in range(2):
        listeners.call(FAILED, **arguments)
    assert (len(others.told), len(last.told)) == (2, 2)
    assert "a listener that is broken" in caplog.text
    assert caplog.text.count("with arguments that it does not have") == 1
    assert caplog.text.count("could not handle") == 4


def test_another_thread_has_specified_the_hook_meanwhile(fresh, add, monkeypatch):
    """API servers answer several requests at once."""
    others, manager = Others(), fresh[core_listener_manager].pm
    add(others)
    specify = manager.add_hookspecs
    monkeypatch.setattr(manager, "add_hookspecs", lambda hooks: (specify(hooks), specify(hooks)))
    listeners.call(FAILED, previous_state=None, task_instance="ti", error=None, execution_context=None)
    assert told(others) == ("ti", None, None)


def test_nobody_listens(fresh):
    listeners.call("on_task_instance_relaunched", task_instance_key="key")


def failed(ti: Any, error: Any = "the pod is gone", previous_state: Any = TaskInstanceState.RUNNING) -> None:
    """As Airflow calls it."""
    core_listener_manager().hook.on_task_instance_failed(
        previous_state=previous_state, task_instance=ti, error=error
    )


def rows(session) -> list[Any]:
    session.commit()
    return session.scalars(select(Log).where(Log.event == audit.EVENT)).all()


def in_words(context: ExecutionContext) -> tuple[str, str, str]:
    return context.category, context.reason, context.source


def test_the_scheduler_tells_what_the_executor_has_stored(add, queued_ti, session):
    ti, others = queued_ti(), Others()
    add(others)
    context = explain(KeyError("as if an executor knew"))
    write_failures({ti.key: (str(ti.id), context)}, session=session)
    session.commit()
    failed(ti)
    assert told(others) == (ti, "the pod is gone", context)
    assert rows(session) == []


def test_the_scheduler_does_not_tell_of_another_try(add, queued_ti, session):
    ti, others = queued_ti(), Others()
    add(others)
    key = ti.key._replace(try_number=ti.try_number + 1)
    write_failures({key: (str(ti.id), explain(ValueError()))}, session=session)
    session.commit()
    failed(ti)
    assert in_words(told(others)[2]) == ("INFRASTRUCTURE", "UNKNOWN", "SCHEDULER")
    assert told(others)[2].metadata == {"message": "the pod is gone"}
    (row,) = rows(session)
    assert StoredContext.from_json(row.extra).context == told(others)[2]


def test_the_scheduler_tells_of_a_heartbeat_timeout(add, queued_ti, session):
    ti, others = queued_ti(), Others()
    add(others)
    session.add(Log(event="heartbeat timeout", task_instance=ti.key))
    session.commit()
    failed(ti)
    assert in_words(told(others)[2]) == ("TIMEOUT", "WORKER_LOST", "SCHEDULER")


def test_the_scheduler_tells_of_a_person_who_has_cleared_the_task(add, queued_ti, session):
    """Its pod has failed before its worker could end as it was told. Airflow tries it again for that."""
    ti, others = queued_ti(), Others()
    add(others)
    ti.state = TaskInstanceState.RESTARTING
    session.commit()
    TaskInstance.fetch_handle_failure_context(
        ti, "the pod is gone", test_mode=False, session=session, fail_fast=False
    )
    assert ti.state == TaskInstanceState.UP_FOR_RETRY
    assert in_words(told(others)[2]) == ("USER_ACTION", "MANUAL_CLEAR", "API")
    assert told(others)[2].metadata == {"state": "restarting", "message": "the pod is gone"}
    (row,) = rows(session)
    assert StoredContext.from_json(row.extra).context == told(others)[2]


def test_the_api_server_tells_of_a_person_and_writes_it_down_first(add, queued_ti, session):
    ti = queued_ti()
    seen = []

    class Reads(Others):
        @hookimpl
        def on_task_instance_failed_with_context(self, execution_context):
            (row,) = rows(session)
            seen.append((StoredContext.from_json(row.extra), row.try_number, execution_context))

    add(Reads())
    failed(ti, "set to failed", previous_state=None)
    ((stored, try_number, context),) = seen
    assert in_words(context) == ("USER_ACTION", "MANUAL_STATE_CHANGE", "API")
    assert stored == StoredContext(str(ti.id), ti.try_number, context)
    assert try_number == ti.try_number


def test_airflow_tells_nobody_of_what_fails_with_its_dag_run(add, queued_ti, session):
    """So says docs/listeners.md."""
    ti, others = queued_ti(), Others()
    add(others)
    ti.state = TaskInstanceState.RUNNING
    session.commit()
    dag = DBDagBag().get_latest_version_of_dag(ti.dag_id, session=session)
    set_dag_run_state_to_failed(dag=dag, run_id=ti.run_id, commit=True, session=session)
    assert (others.told, rows(session)) == ([], [])
    session.refresh(ti)
    assert ti.state == TaskInstanceState.FAILED


def test_what_cannot_be_stored_is_told_to_nobody_and_stops_nobody(add, queued_ti, monkeypatch, caplog):
    class Old:
        called = 0

        @hookimpl
        def on_task_instance_failed(self, task_instance):
            self.called += 1

    old, others = Old(), Others()
    add(old, others)
    monkeypatch.setattr(audit, "create_session", lambda **options: 1 / 0)
    failed(queued_ti())
    assert (old.called, others.told) == (1, [])
    assert "listeners of a failed task are not notified" in caplog.text


def test_a_listener_of_somebody_else_that_is_broken_does_not_keep_ours_from_being_called(add, queued_ti):
    """An exception of one ends Airflow's call of them all. The one that was registered last is the first."""

    class BrokenOfAirflows:
        @hookimpl
        def on_task_instance_failed(self, task_instance):
            raise RuntimeError("a listener that is broken")

    others = Others()
    add(others, BrokenOfAirflows())
    with pytest.raises(RuntimeError, match="a listener that is broken"):
        failed(queued_ti())
    assert len(others.told) == 1


def test_the_worker_tells_what_is_known_in_its_process(add, monkeypatch):
    monkeypatch.setattr(reading._Process, "observer", None)
    ti = RuntimeTaskInstance.model_construct(id="id", dag_id="dag", task=BaseOperator(task_id="task"))
    others, error = Others(), ValueError("own")
    add(others)
    sdk_listener_manager().hook.on_task_instance_failed(
        previous_state=TaskInstanceState.RUNNING, task_instance=ti, error=error
    )
    assert told(others) == (ti, error, explain(error))
    context = explain(KeyError())
    observer = SimpleNamespace(ti_id="id", explain=lambda error: context)
    monkeypatch.setattr(reading._Process, "observer", observer)
    sdk_listener_manager().hook.on_task_instance_failed(
        previous_state=TaskInstanceState.RUNNING, task_instance=ti, error=error
    )
    assert others.told[1] == (ti, error, context)
