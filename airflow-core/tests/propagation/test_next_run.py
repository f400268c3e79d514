# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator

from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.propagation import listener
from airflow_resilience.propagation.next_run import LENGTH, describe
from airflow_resilience.propagation.stored import PREVIOUS_FAILURE, StoredContext

LOST = {"pod": "pod-1", "node": "node-1", "launch": 2, "cause": "drain", "message": "secret"}
BUDGET = "infrastructure retry 1 of 2; policy built-in, rule infrastructure"


def told(explanation: str = "", reason: str = "WORKER_TERMINATION", **metadata: object) -> StoredContext:
    context = ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason(reason), ContextSource.EXECUTOR, metadata
    )
    return StoredContext("id", 1, context, explanation)


def test_after_a_loss_it_says_what_was_lost_and_which_retry_this_is():
    assert describe(told(BUDGET, **LOST)) == (
        "Try 1 is launched again: launch 2 in pod pod-1 on node node-1 ended by drain"
        f" (INFRASTRUCTURE / WORKER_TERMINATION); {BUDGET}"
    )


def test_in_the_next_try_it_says_how_the_one_before_has_failed():
    assert describe(told(reason="TASK_ERROR", exception="builtins.ValueError")) == (
        "Try 1 follows a failure: ended by builtins.ValueError (INFRASTRUCTURE / TASK_ERROR)"
    )
    assert describe(told(reason="UNKNOWN")).endswith("failure: ended (INFRASTRUCTURE / UNKNOWN)")


@pytest.mark.parametrize(
    "text", ["a\nb", "a\r\nb", "a\x1b[31mb", "a\u2028b", "a\0b", "::group::b", "x" * 10**6]
)
def test_it_is_one_line_that_is_bounded_and_inert(text):
    line = describe(told(text, **dict.fromkeys(LOST, text)))
    assert len(line) <= LENGTH
    assert line.isprintable()
    assert "::group::" not in line


def test_containers_have_no_say_in_it():
    assert "secret" not in describe(told(BUDGET, **LOST))


@pytest.fixture
def task(monkeypatch) -> EmptyOperator:
    monkeypatch.setattr("airflow.sdk.bases.operator.ExecutorSafeguard.test_mode", True)
    return EmptyOperator(task_id="task")


def lines(caplog) -> list[str]:
    return [text for text in caplog.messages if text.startswith("Try ")]


def test_the_task_finds_it_in_its_log_once(monkeypatch, task, caplog):
    monkeypatch.setenv(PREVIOUS_FAILURE, told(BUDGET, **LOST).to_json())
    caplog.set_level(logging.INFO)
    listener.on_task_instance_running(SimpleNamespace(task=task, id="id"))
    assert lines(caplog) == []
    task.execute({})
    task.execute({})
    assert lines(caplog) == [describe(told(BUDGET, **LOST))]


def test_a_first_run_and_a_task_that_another_one_has_started_say_nothing(monkeypatch, task, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.delenv(PREVIOUS_FAILURE, raising=False)
    listener.on_task_instance_running(SimpleNamespace(task=task, id="id"))
    monkeypatch.setenv(PREVIOUS_FAILURE, told(BUDGET, **LOST).to_json())
    listener.on_task_instance_running(SimpleNamespace(task=task, id="another"))
    task.execute({})
    assert lines(caplog) == []


def test_a_task_of_which_nothing_can_be_said_runs(monkeypatch, caplog):
    monkeypatch.setenv(PREVIOUS_FAILURE, told(BUDGET, **LOST).to_json())
    listener.on_task_instance_running(SimpleNamespace(id="id"))
    assert "is not said" in caplog.text
