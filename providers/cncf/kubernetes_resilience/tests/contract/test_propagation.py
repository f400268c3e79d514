# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Airflow's hooks, workers and XComs are as it takes to tell listeners, operators and the next run why.

Needs no database and no cluster: it is run with each supported version.
"""

from __future__ import annotations

import inspect
import json
import signal
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.listeners import hookimpl
from airflow.listeners.listener import get_listener_manager
from airflow.models.xcom import XComModel
from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.execution_time import task_runner

import airflow_resilience
from airflow import exceptions as airflow_exceptions
from airflow_resilience import ledger_queries
from airflow_resilience.context import ExecutionContext
from airflow_resilience.decision import NO_POLICY, Action, Decision
from airflow_resilience.plugin import AirflowResiliencePlugin, previous_failure
from airflow_resilience.propagation import listener, listeners, reading
from airflow_resilience.propagation.observer import FailureObserver
from airflow_resilience.propagation.stored import PREVIOUS_FAILURE, StoredContext
from airflow_resilience.termination.exceptions import explain
from airflow_resilience.termination.own_state import Answer, Terminator

pytestmark = pytest.mark.airflow_alone

MANAGERS = pytest.mark.parametrize(
    "manager", [get_listener_manager, task_runner.get_listener_manager], ids=["core", "worker"]
)
WHY = explain(KeyError("the run before"))
PLACE = {"dag_id", "task_id", "run_id", "map_index"}


class Others:
    """A listener of somebody else."""

    def __init__(self):
        self.told = []

    @hookimpl
    def on_task_instance_failed_with_context(self, error, execution_context):
        self.told.append((error, execution_context))

    @hookimpl
    def on_task_instance_relaunched(self, task_instance_key, execution_context, attempt):
        self.told.append((task_instance_key, execution_context, attempt))


@pytest.fixture
def add():
    """Give a function that adds a listener as Airflow does."""
    added = []

    def add(manager):
        others = Others()
        manager.add_listener(others)
        added.append((manager, others))
        return others

    yield add
    for manager, others in added:
        manager.pm.unregister(others)


@MANAGERS
def test_airflow_finds_the_listener(manager):
    assert manager().pm.is_registered(listener)


def test_the_worker_calls_its_hook():
    assert "hook.on_task_instance_failed(" in inspect.getsource(task_runner.finalize)


def test_the_scheduler_writes_down_that_a_task_was_queued_for_too_long():
    assert f'"{ledger_queries._STUCK_EVENT}"' in inspect.getsource(SchedulerJobRunner)


def test_what_a_worker_knows_is_told_with_airflows_own_hook(add, monkeypatch):
    monkeypatch.setattr(reading._Process, "observer", None)
    manager = task_runner.get_listener_manager()
    others, error = add(manager), ValueError("own")
    ti = task_runner.RuntimeTaskInstance.model_construct(
        id="id", dag_id="dag", task=BaseOperator(task_id="task")
    )
    manager.hook.on_task_instance_failed(previous_state="running", task_instance=ti, error=error)
    assert others.told == [(error, explain(error))]


@pytest.mark.parametrize("in_worker", [True, False])
def test_a_relaunch_is_told_with_a_hook_of_our_own(add, in_worker):
    others = add(listeners._manager(in_worker=in_worker))
    decision = Decision(action=Action.RELAUNCH, policy=NO_POLICY, rule="rule", explanation="why")
    listeners.call(
        "on_task_instance_relaunched",
        in_worker=in_worker,
        task_instance_key="key",
        execution_context=WHY,
        decision=decision,
        attempt=2,
    )
    assert others.told == [("key", WHY, 2)]


@pytest.mark.filterwarnings("ignore:airflow.exceptions")  # they are elsewhere, too, from 3.2 on
@pytest.mark.parametrize("name", ["AirflowTaskTimeout", "AirflowSensorTimeout", "TaskDeferralTimeout"])
def test_timeouts_are_known_by_their_names(name):
    assert explain(getattr(airflow_exceptions, name)()).category == "TIMEOUT"


class Told(BaseOperator):
    """Is told why it is ended."""

    told = None

    def execute(self, context):
        signal.raise_signal(signal.SIGTERM)

    def on_kill(self, execution_context: ExecutionContext | None = None):
        self.told = execution_context


def test_an_operator_is_told_why_it_is_ended(monkeypatch):
    monkeypatch.setattr(reading._Process, "observer", None)
    task, before = Told(task_id="task"), signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    try:
        observer = FailureObserver(
            task, ti_id="id", ask=lambda: Answer(Terminator.USER, WHY), store=lambda _: None
        )
        observer.handle_signals()
        observer.wrap()
        reading.observe(observer)
        task.execute({})
    finally:
        signal.signal(signal.SIGTERM, before)
    assert task.told == airflow_resilience.current_termination() == WHY


def test_the_next_run_is_told_and_so_are_its_templates(monkeypatch):
    ti = SimpleNamespace(id="id")
    monkeypatch.setenv(PREVIOUS_FAILURE, json.dumps(StoredContext("id", 1, WHY).to_dict()))
    assert airflow_resilience.previous_failure({"ti": ti}) == WHY
    found = {item.__name__: item for item in AirflowResiliencePlugin.macros}
    assert found["previous_failure"] is previous_failure


def test_airflow_offers_the_macro_to_templates():
    # Where a worker takes it from, which is not the same in every version.
    plugins = find_spec("airflow.sdk.plugins_manager") or find_spec("airflow.plugins_manager")
    import_module(plugins.name).integrate_macros_plugins()
    offered = import_module("airflow.sdk.execution_time.macros")
    assert offered.airflow_resilience.previous_failure is previous_failure


def test_xcoms_are_stored_and_read_as_they_are():
    assert {"key", "value", *PLACE} <= set(inspect.signature(BaseXCom.set).parameters)
    assert {"key", *PLACE} <= set(inspect.signature(BaseXCom.get_one).parameters)
    assert {"dag_run_id", "key", "value", *PLACE} <= set(XComModel.__table__.columns.keys())
