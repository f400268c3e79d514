# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the executor counts of the infrastructure budget; failures are counted where Airflow tells of them."""

from __future__ import annotations

import pytest

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


def test_runs_of_a_try_are_counted_and_the_end_of_its_budget(start, running, counted):
    harness = start(**BUDGET)
    ti, pod = running(harness)
    key = ti.key
    for _ in range(2):
        lose(harness, pod)
        pod = run_again(harness, key)
    lose(harness, pod)
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


def test_a_relaunch_is_no_infrastructure_retry(start, queued_ti, counted):
    harness = start(**BUDGET, KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="1")
    harness.observe(harness.launch(queued_ti()), m.evicted())
    harness.observe(harness.created(), m.evicted())
    assert len(harness.events()) == 1
    assert [tags["action"] for tags in counted("kubernetes_executor.pod_launch_failures")] == [
        "relaunch",
        "count",
    ]
    assert (counted(RETRY), counted(EXHAUSTED)) == ([], [])


def test_what_could_not_be_acted_on_is_found_again_and_counted_once(start, running, counted, monkeypatch):
    """As if the answer to the commit had been lost: its row is there, under a UUID that nobody here knows."""
    harness = start(**BUDGET)
    ti, pod = running(harness)
    key = ti.key
    queue = harness.executor._parts.launch_queue
    with monkeypatch.context() as patch:
        patch.setattr(queue, "relaunch", lambda *args: 1 / 0)
        lose(harness, pod)
        assert counted(RETRY) == []
    assert present(harness, key).state == "queued"
    harness.wait(60)
    run_again(harness, key)
    assert (len(counted(RETRY)), len(losses(harness)), harness.events()) == (1, 1, {})
