# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods that are not there any more, or not there in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed

from ....support import manifests as m
from ....support.harness import lock

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "like",
    [m.unscheduled(), m.starting(), m.alive(), m.evicted()],
    ids=["pending", "container starts", "container runs", "failed"],
)
def test_a_pod_that_vanished_while_queued_is_replaced(harness, launched, like):
    ti, pod = launched
    pod.become(like)
    harness.vanish(pod)
    assert harness.created().launch_number == 2
    assert harness.events() == {}
    assert [entry["worker_uid"] for entry in harness.ledger(ti)] == [pod.ref.uid]


def test_nothing_is_asked_for_of_a_pod_that_is_gone(harness, launched):
    ti, pod = launched
    harness.observe(pod, m.alive())
    harness.begin(ti, pod)
    harness.set_state(ti, "success")
    harness.vanish(pod)
    harness.quiet()
    assert not harness.occupied(ti)
    assert not harness.runtime.take("mark_done")
    assert not harness.runtime.take("clean_up")


def test_a_pod_that_is_out_of_sight_but_there_is_kept(harness, launched):
    ti, pod = launched
    harness.lose_sight(pod)
    ((ref,),) = harness.runtime.take("confirm")
    harness.send(PodConfirmed(ref, pod.become(m.alive()).facts()))
    assert (harness.ledger(ti), harness.occupied(ti)) == ([], True)
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2


def test_a_succeeded_pod_that_is_gone_is_no_failure(harness, launched):
    ti, pod = launched
    harness.begin(ti, pod)
    harness.set_state(ti, "success")
    pod.become(m.succeeded())
    harness.vanish(pod)
    assert [event for event, _ in harness.events().values()] == ["success"]


def test_a_pod_that_was_never_seen_is_asked_for(harness, launched):
    ti, pod = launched
    harness.cluster.remove(pod)
    harness.wait(59)
    assert harness.runtime.take("confirm") == []
    harness.wait(2)
    assert harness.runtime.take("confirm") == [(pod.ref,)]
    harness.send(PodConfirmed(pod.ref, None))
    assert harness.created().launch_number == 2
    (entry,) = harness.ledger(ti)
    assert entry["worker_uid"] == pod.ref.uid


def test_a_pod_that_was_seen_is_not_asked_for(harness, queued_ti):
    pod = harness.launch(queued_ti())
    harness.observe(pod, m.starting())
    harness.wait(100)
    assert harness.runtime.take("confirm") == []


def test_a_pod_that_is_gone_stays_gone_whatever_is_seen_late(harness, launched):
    ti, pod = launched
    harness.observe(pod, m.starting())
    with lock(ti):
        harness.vanish(pod)
        harness.observe(pod, m.alive())
    harness.executor.sync()
    assert [entry["reason"] for entry in harness.ledger(ti)] == ["Deleted"]


def test_an_overdue_deletion_stays_overdue_whatever_else_the_pod_shows(harness, launched):
    ti, pod = launched
    with lock(ti):
        harness.observe(pod, m.pod("Pending", [m.base(m.CREATING)], deleted=True))
        harness.wait(60)
        harness.observe(pod, m.pod("Running", [m.base(m.running())], deleted=True))
    harness.executor.sync()
    assert [entry["reason"] for entry in harness.ledger(ti)] == ["DeletionOverdue"]


def test_an_overdue_deletion_of_a_running_task_is_let_be(harness, queued_ti):
    ti = queued_ti()
    with time_machine.travel(NOW, tick=False):
        pod = harness.launch(ti)
        harness.begin(ti, pod)
        pod.become(m.alive()).deleting(NOW + timedelta(seconds=30))
        harness.observe(pod)
    harness.wait(60)
    assert (harness.events(), harness.ledger(ti), harness.occupied(ti)) == ({}, [], True)
    assert harness.runtime.take("delete") == []
    harness.observe(pod, m.disrupted("DeletionByTaintManager"))
    assert [event for event, _ in harness.events().values()] == ["failed"]
