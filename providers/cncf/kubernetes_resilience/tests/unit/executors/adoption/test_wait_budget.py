# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How long adoption may keep the scheduler waiting."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import WaitBudget

from ....support.harness import OTHER_JOB, Clock


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setenv("AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", "40")
    return Clock()


def wait(budget: WaitBudget, clock: Clock, seconds: float) -> float:
    """Wait, and return what was allowed."""
    with budget.spent(clock) as left:
        clock.advance(seconds)
    return left


def test_half_of_the_threshold_for_all_together(clock):
    budget = WaitBudget()
    assert [wait(budget, clock, seconds) for seconds in (12, 8, 1)] == [20, 8, 0]


def test_what_was_waited_before_the_last_heartbeats_is_over(clock):
    budget = WaitBudget()
    wait(budget, clock, 20)
    clock.advance(39)
    assert wait(budget, clock, 0) == 0
    clock.advance(1)
    assert wait(budget, clock, 0) == 20


def test_an_idle_scheduler_holds_nothing_of_what_it_has_waited(start, queued_ti, monkeypatch):
    from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

    budget = WaitBudget()
    monkeypatch.setattr(KubernetesExecutor, "_wait_budget", budget)
    heir, ti = start(), queued_ti()
    heir.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    heir.adopt(ti)
    assert budget._waits
    heir.wait(60)
    assert not budget._waits


def test_an_error_counts_as_well(clock):
    budget = WaitBudget()

    def hang():
        with budget.spent(clock) as left:
            clock.advance(left)
            raise TimeoutError

    with pytest.raises(TimeoutError):
        hang()
    assert wait(budget, clock, 0) == 0


def test_executors_of_a_scheduler_share_it(start, queued_ti, monkeypatch):
    """The first one is kept waiting for all that there is, and the second one not at all."""
    from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

    monkeypatch.setattr(KubernetesExecutor, "_wait_budget", WaitBudget())
    first, second = start(), start()
    second.parts.adopter._search._clock = first.clock
    allowed = []

    def hang(coroutine, timeout):
        coroutine.close()
        allowed.append(timeout)
        first.clock.advance(timeout)
        raise TimeoutError

    for harness, ti in zip((first, second), queued_ti(mapped=2), strict=True):
        monkeypatch.setattr(harness.runtime, "call", hang)
        harness.set_state(ti, "running", queued_by_job_id=OTHER_JOB)
        assert harness.executor.try_adopt_task_instances([ti]) == []
    assert allowed == [15, 0]
