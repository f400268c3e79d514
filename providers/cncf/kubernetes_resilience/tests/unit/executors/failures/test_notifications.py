# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is told and counted of relaunches; failures are told and counted where Airflow tells of them."""

from __future__ import annotations

import pytest
from airflow.listeners import hookimpl
from airflow.listeners.listener import get_listener_manager

from airflow_resilience.metrics import stats

from ....support import manifests as m
from .test_executions import BUDGET, lose, losses, present, run_again

RETRY = "task_instance.infrastructure_retry"
EXHAUSTED = "task_instance.infrastructure_budget_exhausted"


@pytest.fixture
def counted(monkeypatch):
    """Give a function that tells how often, and with which tags, a metric was counted."""
    found = []
    monkeypatch.setattr(stats(), "incr", lambda name, *args, tags=None, **kwargs: found.append((name, tags)))
    return lambda name: [tags for counted, tags in found if counted == name]


@pytest.fixture
def told():
    """Give what a listener is told of relaunches."""
    found = []

    class Listener:
        @hookimpl
        def on_task_instance_relaunched(self, task_instance_key, execution_context, decision, attempt):
            found.append((task_instance_key, execution_context, decision, attempt))

    get_listener_manager().add_listener(listener := Listener())
    yield found
    get_listener_manager().pm.unregister(listener)


def test_runs_of_a_try_are_told_and_counted_and_the_end_of_its_budget(start, running, counted, told):
    harness = start(**BUDGET)
    ti, pod = running(harness)
    key = ti.key
    for _ in range(2):
        lose(harness, pod)
        pod = run_again(harness, key)
    lose(harness, pod)  # it is reported
    assert [(item[0], item[2].action, item[3]) for item in told] == [
        (key, "relaunch", 1),
        (key, "relaunch", 2),
    ]
    assert [item[1].category for item in told] == ["INFRASTRUCTURE"] * 2
    tags = {"reason": "RESOURCE_EXHAUSTION", "dag_id": key.dag_id}
    assert counted(RETRY) == [{**tags, "attempt": "1"}, {**tags, "attempt": "2"}]
    assert counted(EXHAUSTED) == [tags]
    assert counted("task_instance.failed") == []


@pytest.mark.parametrize("config", [{}, BUDGET], ids=["no budget", "a failure that it is not for"])
def test_a_failure_that_no_budget_is_for_has_exhausted_none(start, running, counted, config):
    harness = start(**config)
    _, pod = running(harness)
    lose(harness, pod, m.out_of_memory() if config else m.evicted())
    assert len(harness.events()) == 1
    assert (counted(RETRY), counted(EXHAUSTED)) == ([], [])


def test_a_relaunch_is_told_and_no_infrastructure_retry(start, queued_ti, counted, told):
    harness = start(**BUDGET, KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="2")
    pod = harness.launch(queued_ti())
    for like in (m.evicted(), m.start_error()):
        harness.observe(pod, like)
        pod = harness.created()
    harness.observe(pod, m.evicted())
    assert len(harness.events()) == 1
    actions = [tags["action"] for tags in counted("kubernetes_executor.pod_launch_failures")]
    assert actions == ["relaunch", "relaunch", "count"]
    assert (counted(RETRY), counted(EXHAUSTED)) == ([], [])
    assert [(item[1].reason, item[3]) for item in told] == [("RESOURCE_EXHAUSTION", 1), ("START_ERROR", 2)]


def test_a_broken_listener_stops_no_relaunch(harness, launched, told):
    class Broken:
        @hookimpl
        def on_task_instance_relaunched(self):
            raise RuntimeError("broken")

    get_listener_manager().add_listener(broken := Broken())
    try:
        harness.observe(launched[1], m.evicted())
        assert harness.created()
    finally:
        get_listener_manager().pm.unregister(broken)
    assert len(told) == 1


def test_what_could_not_be_acted_on_is_found_again_and_counted_once(start, running, counted, monkeypatch):
    """As if the answer to the commit had been lost: its row is there, under a UUID that nobody here knows."""
    harness = start(**BUDGET)
    ti, pod = running(harness)
    key = ti.key
    queue = harness.parts.launch_queue
    with monkeypatch.context() as patch:
        patch.setattr(queue, "relaunch", lambda *args: 1 / 0)
        lose(harness, pod)
        assert counted(RETRY) == []
    assert present(harness, key).state == "queued"
    harness.wait(60)
    run_again(harness, key)
    assert (len(counted(RETRY)), len(losses(harness)), harness.events()) == (1, 1, {})
