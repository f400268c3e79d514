# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.listeners.listener import get_listener_manager as core_listener_manager
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk.listener import get_listener_manager as sdk_listener_manager

from airflow_resilience.termination import listener
from airflow_resilience.termination.environment import INFRASTRUCTURE_RETRY


@pytest.fixture
def ti() -> SimpleNamespace:
    return SimpleNamespace(task=EmptyOperator(task_id="task"))


@pytest.fixture(autouse=True)
def handler() -> Iterator[Any]:
    def on_term(signum: int, frame: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, on_term)
    yield on_term
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def switched_on(monkeypatch) -> None:
    monkeypatch.setenv(INFRASTRUCTURE_RETRY, "1")


def is_armed(ti: SimpleNamespace) -> bool:
    return "execute" in vars(ti.task)


@pytest.mark.parametrize("manager", [core_listener_manager, sdk_listener_manager])
def test_airflow_finds_the_listener(manager):
    assert listener in manager().pm.get_plugins()


def test_a_task_that_runs_again_is_guarded(switched_on, ti):
    sdk_listener_manager().hook.on_task_instance_running(previous_state=None, task_instance=ti)
    assert is_armed(ti)


def test_any_other_is_left_alone(monkeypatch, ti, handler):
    monkeypatch.delenv(INFRASTRUCTURE_RETRY, raising=False)
    listener.on_task_instance_running(ti)
    assert not is_armed(ti)
    assert signal.getsignal(signal.SIGTERM) is handler


def test_it_is_left_alone_where_a_terminated_worker_cannot_report(switched_on, monkeypatch, ti):
    monkeypatch.setattr(listener, "_FORWARDS_SIGTERM", False)
    listener.on_task_instance_running(ti)
    assert not is_armed(ti)


def test_a_task_that_cannot_be_guarded_runs(switched_on, caplog):
    listener.on_task_instance_running(SimpleNamespace(task=None))
    assert "is not guarded" in caplog.text
