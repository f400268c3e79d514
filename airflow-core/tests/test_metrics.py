# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is counted, and by whom; tests/test_told.py has real receivers."""

from __future__ import annotations

import itertools
import re

import pytest
from airflow.listeners.listener import get_listener_manager as core_listener_manager
from airflow.sdk import BaseOperator
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.listener import get_listener_manager as sdk_listener_manager
from airflow.utils.state import TaskInstanceState

from airflow_resilience import metrics
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.propagation import audit, listener, reading
from airflow_resilience.propagation.database import write_failures

LOST = ExecutionContext(
    StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_LOST, ContextSource.EXECUTOR
)
RETRIED = {"reason": "WORKER_LOST", "dag_id": "dag"}


@pytest.fixture
def counted(monkeypatch):
    """Give the names and tags of what is counted."""
    found = []
    for in_worker in (True, False):
        of = metrics.stats(in_worker=in_worker)
        monkeypatch.setattr(of, "incr", lambda name, *, tags: found.append((name, tags)))
    return found


def failed(ti, error=None, previous_state=TaskInstanceState.RUNNING, manager=core_listener_manager):
    """As Airflow calls it."""
    manager().hook.on_task_instance_failed(previous_state=previous_state, task_instance=ti, error=error)


def test_the_scheduler_counts_what_an_executor_has_stored(counted, queued_ti, session):
    ti = queued_ti()
    write_failures({ti.key: (str(ti.id), LOST)}, session=session)
    session.commit()
    failed(ti)
    tags = {"reason": "WORKER_LOST", "dag_id": ti.dag_id}
    assert counted == [
        ("task_instance.failed", {"category": "INFRASTRUCTURE", "source": "EXECUTOR", **tags}),
        ("task.failed.infrastructure", tags),
    ]


def test_the_api_server_counts_what_a_person_has_done(counted, queued_ti):
    ti = queued_ti()
    failed(ti, previous_state=None)
    ((name, tags),) = counted
    assert (name, tags["category"], tags["source"]) == ("task_instance.failed", "USER_ACTION", "API")


def test_the_worker_counts_what_its_task_has_done(counted, monkeypatch):
    monkeypatch.setattr(reading._Process, "observer", None)
    ti = RuntimeTaskInstance.model_construct(id="id", dag_id="dag", task=BaseOperator(task_id="task"))
    failed(ti, ValueError(), manager=sdk_listener_manager)
    tags = {"reason": "TASK_ERROR", "dag_id": "dag"}
    assert counted == [
        ("task_instance.failed", {"category": "APPLICATION", "source": "WORKER", **tags}),
        ("task.failed.application", tags),
    ]


@pytest.mark.parametrize("source", [ContextSource.API, ContextSource.SCHEDULER])
def test_the_worker_does_not_count_what_others_have_done(counted, source):
    context = ExecutionContext(StateChangeCategory.USER_ACTION, StateChangeReason.MANUAL_CLEAR, source)
    metrics.count_failure(context, "dag", in_worker=True)
    assert counted == []
    metrics.count_failure(context, "dag", in_worker=False)
    assert len(counted) == 1


def test_what_nobody_is_told_of_is_not_counted(counted, queued_ti, monkeypatch):
    monkeypatch.setattr(audit, "create_session", lambda **options: 1 / 0)
    failed(queued_ti())
    assert counted == []


@pytest.mark.parametrize(
    ("attempt", "shown"), [(1, "1"), (9, "9"), (10, "10_or_more"), (10**6, "10_or_more")]
)
def test_the_number_of_an_attempt_is_bounded(counted, attempt, shown):
    metrics.count_infrastructure_retry(LOST, "dag", attempt)
    assert counted == [("task_instance.infrastructure_retry", {**RETRIED, "attempt": shown})]


def test_airflow_takes_every_name_and_tag():
    """It drops a metric with another character where StatsD gets its tags in the name."""
    words = [*StateChangeCategory, *StateChangeReason, *ContextSource, "10_or_more"]
    names = [(counter.name, *counter.tags) for counter in metrics.COUNTERS]
    for word in [*words, *itertools.chain.from_iterable(names)]:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", word)


def test_what_cannot_be_counted_stops_nothing(queued_ti, monkeypatch, caplog):
    monkeypatch.setattr(metrics.stats(), "incr", lambda *args, **kwargs: 1 / 0)
    told = []
    monkeypatch.setattr(listener.listeners, "call", lambda *args, **kwargs: told.append(kwargs))
    failed(queued_ti())
    assert len(told) == 1
    assert "task_instance.failed could not be counted" in caplog.text


def test_a_counter_has_its_tags_and_no_others(counted, caplog):
    metrics.BUDGET_EXHAUSTED.count(reason="WORKER_LOST", dag_id="dag", task_id="task")
    assert counted == [("task_instance.infrastructure_budget_exhausted", RETRIED)]
    metrics.BUDGET_EXHAUSTED.count(reason="WORKER_LOST")
    assert len(counted) == 1
    assert "infrastructure_budget_exhausted could not be counted" in caplog.text
