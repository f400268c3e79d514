# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Adoption while the API server does not answer, or answers for some of the pods only."""

from __future__ import annotations

import pytest
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor as Official

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
)

from ....support import manifests as m

OUTAGES = [ConnectionFailedError("refused"), KubernetesApiError("busy", status=503), TimeoutError()]


def try_again(heir) -> None:
    """Let the time of the next attempt come, and the attempt be made."""
    heir.wait(60)
    heir.runtime.carry_out("PodSearch")
    heir.executor.sync()
    heir.relabel()
    heir.executor.sync()


@pytest.mark.parametrize("outage", OUTAGES, ids=repr)
def test_it_is_postponed_and_completed(launched, successor, cluster, outage):
    ti, pod = launched
    heir = successor()
    cluster.outage = outage
    assert heir.adopt(ti) == []
    assert heir.occupied(ti)
    try_again(heir)
    assert pod.labels["airflow-worker"] != heir.label

    cluster.outage = None
    try_again(heir)
    assert pod.labels["airflow-worker"] == heir.label
    heir.observe(pod, m.start_error())
    assert heir.row(ti).state == "scheduled"


def test_a_next_phase_that_is_refused_fails_whatever_is_found_of_the_earlier_one(
    harness, queued_ti, successor, cluster, monkeypatch
):
    ti = queued_ti()
    harness.run(ti)
    heir = successor()
    cluster.outage = OUTAGES[0]
    heir.adopt(ti)
    cluster.outage = None
    heir.wait(60)
    heir.runtime.carry_out("PodSearch")
    monkeypatch.setattr(Official, "execute_async", lambda self, **workload: 1 / 0)
    heir.requeue(ti)
    assert "could not be accepted" in heir.failure()
    assert heir.ledger(ti) == []


def test_the_loop_does_not_wait_for_it(launched, successor, cluster):
    ti, _ = launched
    heir = successor()
    cluster.outage = OUTAGES[0]
    heir.adopt(ti)
    calls = heir.runtime.calls
    try_again(heir)
    try_again(heir)
    assert heir.runtime.calls == calls


def test_the_thread_being_down_postpones_it_too(launched, successor):
    ti, pod = launched
    heir = successor()
    heir.runtime.is_alive = False
    assert heir.adopt(ti) == []
    try_again(heir)
    assert pod.labels["airflow-worker"] == heir.label


def test_one_pod_that_cannot_be_labelled_does_not_hold_up_the_others(harness, queued_ti, successor, cluster):
    one, other = queued_ti(mapped=2)
    pods = {ti.map_index: harness.launch(ti) for ti in (one, other)}
    heir = successor()
    cluster.refused[pods[0].ref.uid] = KubernetesApiError("busy", status=500)
    assert heir.adopt(one, other) == []
    heir.observe(pods[1], m.start_error())
    assert heir.row(other).state == "scheduled"

    cluster.refused.clear()
    try_again(heir)
    heir.observe(pods[0], m.start_error())
    assert heir.row(one).state == "scheduled"


def test_a_pod_that_was_labelled_before_the_answer_was_lost_is_found_again(launched, successor, cluster):
    ti, pod = launched
    heir = successor()
    cluster.outage = TimeoutError()
    heir.adopt(ti)
    pod.labels["airflow-worker"] = heir.label
    heir.observe(pod, m.evicted())
    assert heir.runtime.take("mark_done") == []

    cluster.outage = None
    try_again(heir)
    assert heir.row(ti).state == "scheduled"
    assert len(heir.ledger(ti)) == 1
    heir.quiet()
    assert heir.runtime.take("mark_done") == [(pod.ref,)]


def test_a_postponed_task_that_was_queued_anew_keeps_its_new_launch(launched, successor, cluster):
    ti, old = launched
    heir = successor()
    heir.begin(ti, old)
    cluster.outage = OUTAGES[0]
    heir.adopt(ti)
    heir.set_state(ti, "queued")
    new = heir.launch(ti)  # it deferred, and its trigger fired
    cluster.outage = None
    try_again(heir)
    assert heir.runtime.take("clean_up") == []
    heir.observe(old, m.succeeded())
    heir.quiet()
    assert heir.runtime.take("clean_up") == [(old.ref,)]
    assert heir.ledger(ti) == []
    heir.observe(new, m.start_error())
    assert len(heir.ledger(ti)) == 1


def test_a_running_task_whose_pod_is_not_found_later_is_left_to_its_heartbeat(
    harness, queued_ti, successor, cluster
):
    ti = queued_ti()
    harness.set_state(ti, "running")
    heir = successor()
    cluster.outage = OUTAGES[0]
    heir.adopt(ti)
    cluster.outage = None
    try_again(heir)
    try_again(heir)
    assert (heir.occupied(ti), heir.row(ti).state, heir.events()) == (False, "running", {})


def test_an_attempt_that_is_not_answered_is_made_again(launched, successor, cluster):
    ti, pod = launched
    heir = successor()
    cluster.outage = OUTAGES[0]
    heir.adopt(ti)
    heir.wait(60)
    heir.runtime.commands.clear()  # lost with the thread
    cluster.outage = None
    heir.clock.advance(60)
    try_again(heir)
    assert pod.labels["airflow-worker"] == heir.label


def test_what_is_seen_of_a_pod_that_is_waited_for_is_not_forgotten(launched, successor, cluster):
    ti, old = launched
    heir = successor()
    cluster.outage = OUTAGES[0]
    heir.adopt(ti)
    old.labels["airflow-worker"] = heir.label
    heir.observe(old, m.succeeded())  # the worker has deferred the task, and its trigger fires
    heir.quiet()
    assert heir.runtime.take("clean_up") == []
    heir.set_state(ti, "queued")
    heir.hand_over(heir.row(ti))
    heir.executor.sync()
    heir.quiet()
    assert heir.runtime.take("clean_up") == [(old.ref,)]
