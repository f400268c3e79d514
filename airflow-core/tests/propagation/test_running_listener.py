# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.listeners import hookimpl
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk.listener import get_listener_manager as sdk_listener_manager

from airflow_resilience.propagation import listener, reading
from airflow_resilience.propagation.reading import observer_of
from airflow_resilience.termination.environment import INFRASTRUCTURE_RETRY
from airflow_resilience.termination.guard import TerminationGuard


@pytest.fixture
def ti() -> SimpleNamespace:
    return SimpleNamespace(task=EmptyOperator(task_id="task"), id="id")


@pytest.fixture(autouse=True)
def handler() -> Iterator[Any]:
    def on_term(signum: int, frame: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, on_term)
    yield on_term
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(autouse=True)
def nothing_runs_here(monkeypatch) -> None:
    monkeypatch.setattr(reading._Process, "observer", None)


@pytest.fixture
def switched_on(monkeypatch) -> None:
    monkeypatch.setenv(INFRASTRUCTURE_RETRY, "1")


def is_armed() -> bool:
    return isinstance(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), TerminationGuard)


def is_observed(ti: SimpleNamespace) -> bool:
    return observer_of(ti) is not None and "execute" in vars(ti.task)


def test_a_task_that_runs_again_is_guarded(switched_on, ti):
    sdk_listener_manager().hook.on_task_instance_running(previous_state=None, task_instance=ti)
    assert is_armed()
    assert is_observed(ti)


def test_a_listener_of_somebody_else_that_is_broken_changes_nothing(switched_on, ti):
    """An exception of one ends Airflow's call of them all. The one that was registered last is the first."""

    class Broken:
        @hookimpl
        def on_task_instance_running(self, task_instance):
            raise RuntimeError("a listener that is broken")

    broken, manager = Broken(), sdk_listener_manager()
    manager.add_listener(broken)
    try:
        with pytest.raises(RuntimeError, match="a listener that is broken"):
            manager.hook.on_task_instance_running(previous_state=None, task_instance=ti)
    finally:
        manager.pm.unregister(broken)
    assert is_armed()
    assert is_observed(ti)


def test_any_other_is_observed(monkeypatch, ti):
    monkeypatch.delenv(INFRASTRUCTURE_RETRY, raising=False)
    listener.on_task_instance_running(ti)
    assert not is_armed()
    assert is_observed(ti)


@pytest.mark.parametrize("again", ["0", "1"])
def test_when_its_code_has_ended_the_handler_is_airflows(monkeypatch, ti, handler, again):
    monkeypatch.setenv(INFRASTRUCTURE_RETRY, again)
    monkeypatch.setattr("airflow.sdk.bases.operator.ExecutorSafeguard.test_mode", True)
    listener.on_task_instance_running(ti)
    ti.task.execute(context={})
    assert signal.getsignal(signal.SIGTERM) is handler
    assert "execute" not in vars(ti.task)


def test_outside_of_the_main_thread_it_is_observed_without_signals(monkeypatch, ti, handler):
    monkeypatch.delenv(INFRASTRUCTURE_RETRY, raising=False)
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(listener.on_task_instance_running, ti).result()
    assert is_observed(ti)
    assert signal.getsignal(signal.SIGTERM) is handler


def test_it_is_not_guarded_where_a_terminated_worker_cannot_report(switched_on, monkeypatch, ti):
    monkeypatch.setattr(listener, "_FORWARDS_SIGTERM", False)
    listener.on_task_instance_running(ti)
    assert not is_armed()


def test_a_task_that_cannot_be_observed_runs(switched_on, caplog):
    listener.on_task_instance_running(SimpleNamespace())
    assert "is not observed" in caplog.text


def test_a_task_that_cannot_be_guarded_is_observed(switched_on, monkeypatch, ti, caplog):
    monkeypatch.setattr(TerminationGuard, "__init__", lambda *args, **kwargs: 1 / 0)
    listener.on_task_instance_running(ti)
    assert "is not guarded" in caplog.text
    assert is_observed(ti)
