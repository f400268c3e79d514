# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A turn of the scheduler's loop takes a bounded time, however much has arrived."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors import kubernetes_executor
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodCreated, PodObservation

from .cluster import Pod

TASKS = 7


@pytest.fixture
def ended(start, queued_ti):
    """Give an executor to which the end of many tasks has arrived, and whose work takes time."""
    harness = start()
    tis = queued_ti(mapped=TASKS)
    for ti in tis:
        harness.queue(ti)
    harness.executor.heartbeat()
    pods = [(launch_id, harness.cluster.add(Pod(body))) for launch_id, body in harness.runtime.take("create")]
    harness.send(*(PodCreated(launch_id, pod.ref) for launch_id, pod in pods))
    for ti in tis:
        harness.set_state(ti, "success")
    for _, pod in pods:
        harness.executor._inbox.put(PodObservation(pod.facts(phase="Succeeded")))
    return harness


def turns_until_all_is_reported(harness):
    reported = {}
    for turns in range(1, 2 * TASKS):
        harness.executor.sync()
        reported |= harness.events()
        if len(reported) == TASKS:
            return turns
    raise AssertionError(f"only {len(reported)} of {TASKS} were reported")


def passing(harness, monkeypatch, seconds):
    """Let each look at the clock take some time."""

    def clock():
        harness.clock.advance(seconds)
        return harness.clock.now

    monkeypatch.setattr(harness.executor, "_clock", clock)


def test_what_can_be_done_in_time_is_done_in_one_turn(ended):
    assert turns_until_all_is_reported(ended) == 1


def test_messages_that_take_long_wait_for_the_next_turn(ended, monkeypatch):
    passing(ended, monkeypatch, kubernetes_executor.RECEIVE_BUDGET / 2)
    assert 1 < turns_until_all_is_reported(ended) < TASKS


def test_launches_that_take_long_to_settle_wait_for_the_next_turn(ended, monkeypatch):
    monkeypatch.setattr(kubernetes_executor, "SETTLE_BATCH", 2)
    monkeypatch.setattr(kubernetes_executor, "RECEIVE_BUDGET", 1e6)
    passing(ended, monkeypatch, kubernetes_executor.SETTLE_BUDGET)
    assert turns_until_all_is_reported(ended) > 1


def test_a_turn_that_can_do_nothing_in_time_still_does_something(ended, monkeypatch):
    passing(ended, monkeypatch, 2 * kubernetes_executor.RECEIVE_BUDGET)
    assert turns_until_all_is_reported(ended) == TASKS
