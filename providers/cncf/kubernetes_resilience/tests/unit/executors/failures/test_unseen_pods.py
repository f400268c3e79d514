# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods that no informer sees: those in a namespace that is not watched, or whose list is not permitted."""

from __future__ import annotations

import pytest
from kubernetes.client import V1ObjectMeta, V1Pod

from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import UNSEEN_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.reconciler import CHECK_INTERVAL
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodNotConfirmed,
    PodNotDeleted,
)

from ....support import manifests as m
from .test_executions import heartbeat_timeout

ELSEWHERE = {"pod_override": V1Pod(metadata=V1ObjectMeta(namespace="other"))}


@pytest.fixture
def pod(harness, ti):
    """Give the pod of a task instance that runs in a namespace which is not watched."""
    harness.set_state(ti, "queued", executor_config=ELSEWHERE)
    pod = harness.launch(ti).become(m.alive())
    harness.begin(ti, pod)
    ask(harness, pod)
    return pod


def ask(harness, pod) -> None:
    """Let the time of the next question come, and answer that."""
    harness.wait(UNSEEN_TIMEOUT)
    assert harness.runtime.take("confirm") == [(pod.ref,)]
    harness.send(PodConfirmed(pod.ref, pod.facts() if pod in harness.cluster.pods.values() else None))


def test_one_whose_task_has_ended_gives_its_slot_back(harness, ti, pod):
    assert pod.ref.namespace not in harness.executor.namespaces()
    for _ in range(10):
        ask(harness, pod)
    assert harness.occupied(ti)
    harness.set_state(ti, "success")
    pod.become(m.succeeded())
    ask(harness, pod)
    assert [state for state, _ in harness.events().values()] == ["success"]
    assert not harness.occupied(ti)
    harness.wait(2 * UNSEEN_TIMEOUT)
    assert harness.runtime.take("confirm") == []


@pytest.mark.parametrize("is_removed", [True, False], ids=["gone", "failed"])
def test_the_end_of_one_is_noticed(harness, ti, pod, is_removed):
    pod.become(m.out_of_memory())
    if is_removed:
        harness.cluster.remove(pod)
    ask(harness, pod)
    assert [state for state, _ in harness.events().values()] == ["failed"]
    assert not harness.occupied(ti)


def test_one_in_which_no_worker_has_started_is_replaced(harness, ti):
    harness.set_state(ti, "queued", executor_config=ELSEWHERE)
    pod = harness.launch(ti).become(m.starting())
    ask(harness, pod)
    pod.become(m.start_error())
    ask(harness, pod)
    assert harness.created().launch_number == 2


def test_the_api_server_is_asked_once_while_it_does_not_answer(harness, pod):
    for _ in range(20):
        harness.wait(UNSEEN_TIMEOUT)
    assert harness.runtime.take("confirm") == [(pod.ref,)]


@pytest.mark.parametrize("has_ended", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("state", "worker", "step"),
    [("success", m.COMPLETED, "clean_up"), ("failed", m.terminated(1, "Error"), "stop_and_keep")],
)
def test_the_sidecar_of_one_whose_task_has_ended_before_that_is_ended(
    harness, queued_ti, state, worker, step, has_ended
):
    """The launch is cancelled by its row, and its pod is not deleted since it has started."""
    ti = queued_ti()
    pod = harness.launch(ti).become(m.lingering(worker) if has_ended else m.alive())
    harness.set_state(ti, state)
    harness.wait(CHECK_INTERVAL)
    assert not harness.occupied(ti)
    assert [ref for ref, *_ in harness.runtime.take("delete")] == [pod.ref]
    harness.send(PodNotDeleted(pod.facts()))
    if not has_ended:
        harness.quiet()
        harness.observe(pod, m.lingering(worker))
    harness.wait(SIDECAR_GRACE)
    harness.quiet()
    assert harness.runtime.take(step) == [(pod.ref,)]


def test_one_that_may_not_be_read_is_asked_about_again(harness, pod):
    for _ in range(3):
        harness.wait(UNSEEN_TIMEOUT)
        assert harness.runtime.take("confirm") == [(pod.ref,)]
        harness.send(PodNotConfirmed(pod.ref))
    ask(harness, pod)


def test_one_that_is_gone_is_asked_about_until_it_may_be_read(harness, queued_ti):
    pod = harness.launch(queued_ti())
    harness.observe(pod, m.starting())
    harness.cluster.remove(pod)
    harness.lose_sight(pod)
    assert harness.runtime.take("confirm") == [(pod.ref,)]
    harness.send(PodNotConfirmed(pod.ref))
    ask(harness, pod)
    assert harness.created().launch_number == 2


def test_one_that_is_seen_is_not_asked_about_any_more(harness, pod):
    harness.observe(pod)
    harness.wait(2 * UNSEEN_TIMEOUT)
    assert harness.runtime.take("confirm") == []


def test_a_silent_worker_in_one_has_ended(harness, ti, pod):
    heartbeat_timeout(harness, ti)
    harness.executor.sync()
    assert [state for state, _ in harness.events().values()] == ["failed"]
    assert not harness.occupied(ti)
