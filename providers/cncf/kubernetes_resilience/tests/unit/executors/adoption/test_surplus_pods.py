# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods that are found and not adopted: superseded ones, and those of tasks that were revoked meanwhile."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.abandoned_pods import AbandonedPods
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import DELETION_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation

from ....support import manifests as m
from ....support.harness import OTHER_JOB
from .test_adopter_outage import try_again

AWAY = ConnectionFailedError("refused")


ENDS = pytest.mark.parametrize(
    ("like", "command"),
    [(m.start_error(), "mark_done"), (m.lingering(m.terminated(137, "OOMKilled")), "stop_and_keep")],
    ids=["alone", "beside a sidecar"],
)


@ENDS
def test_the_newest_launch_is_adopted_and_the_others_are_retired(harness, launched, successor, like, command):
    ti, first = launched
    harness.observe(first, like)  # the command to take it out of sight is lost with the scheduler
    harness.wait(SIDECAR_GRACE)
    second = harness.created()
    heir = successor()

    assert heir.adopt(ti) == []
    heir.executor.sync()
    assert second.labels["airflow-worker"] == heir.label
    heir.quiet()
    assert (heir.runtime.take("delete"), heir.runtime.take(command)) == ([], [(first.ref,)])
    heir.send(PodObservation(first.facts()))
    assert (heir.events(), heir.occupied(ti)) == ({}, True)


def test_a_postponed_task_that_was_revoked_is_not_adopted(launched, successor, cluster):
    ti, _ = launched
    heir = successor()
    cluster.outage = AWAY
    heir.adopt(ti)
    heir.executor.revoke_task(ti=ti)
    cluster.outage = None
    try_again(heir)
    assert not heir.occupied(ti)


@pytest.fixture
def revoked(launched, successor, cluster):
    """Give a scheduler that has revoked a task instance before it could adopt its pod, which it now can."""
    ti, pod = launched
    heir = successor()
    cluster.outage = AWAY
    heir.adopt(ti)
    heir.executor.revoke_task(ti=ti)
    heir.executor.sync()
    cluster.outage = None
    return heir, ti, pod


def test_the_pod_of_a_postponed_task_that_was_revoked_is_deleted_when_it_is_found(revoked):
    """Whatever it does by then: beside a worker that starts, the next launch could start too."""
    heir, _, pod = revoked
    pod.manifest["metadata"]["resourceVersion"] = "7"
    assert heir.runtime.take("delete") == []
    try_again(heir)
    assert heir.runtime.take("delete") == [(pod.ref,)]
    try_again(heir)
    assert heir.runtime.take("delete") == []


def test_it_is_also_deleted_if_it_is_being_looked_for_at_that_moment(launched, successor, cluster):
    ti, pod = launched
    heir = successor()
    cluster.outage = AWAY
    heir.adopt(ti)
    cluster.outage = None
    heir.wait(60)
    heir.runtime.carry_out("PodSearch")
    heir.executor.revoke_task(ti=ti)
    try_again(heir)
    assert heir.runtime.take("delete") == [(pod.ref,)]


@ENDS
def test_it_is_kept_if_it_has_failed(revoked, like, command):
    heir, _, pod = revoked
    pod.become(like)
    try_again(heir)
    heir.quiet()
    assert (heir.runtime.take("delete"), heir.runtime.take(command)) == ([], [(pod.ref,)])


def test_it_is_deleted_although_it_cannot_be_labelled(revoked, cluster):
    heir, _, pod = revoked
    cluster.refused[pod.ref.uid] = KubernetesApiError("busy", status=500)
    try_again(heir)
    assert heir.runtime.take("delete") == [(pod.ref,)]


def test_it_is_left_alone_if_the_task_runs_in_it(revoked):
    heir, ti, pod = revoked
    heir.begin(ti, pod)
    try_again(heir)
    assert heir.runtime.take("delete") == []


def test_the_next_launch_waits_until_it_is_gone(revoked):
    heir, ti, pod = revoked
    heir.hand_over(heir.row(ti))
    try_again(heir)
    assert heir.runtime.take("create") == []
    heir.deleted(pod.ref)
    assert heir.created().launch_number == 1


def test_the_next_launch_does_not_wait_if_there_is_none(revoked, cluster):
    heir, ti, pod = revoked
    cluster.remove(pod)
    heir.hand_over(heir.row(ti))
    assert heir.runtime.take("create") == []
    try_again(heir)
    assert heir.created().launch_number == 1


def test_the_next_launch_waits_for_as_long_as_nobody_can_say_whether_there_is_one(revoked, cluster):
    heir, ti, pod = revoked
    cluster.outage = AWAY
    heir.hand_over(heir.row(ti))
    heir.wait(2 * DELETION_TIMEOUT)
    assert heir.runtime.take("create") == []
    told = heir.registry.describe(heir.clock())
    assert any(line.endswith("waits until its pods can be listed") for line in told)
    cluster.outage = None
    cluster.remove(pod)
    try_again(heir)
    assert heir.created().launch_number == 1


def test_the_next_launch_does_not_wait_for_ever_for_what_is_found_and_cannot_be_deleted(revoked, monkeypatch):
    heir, ti, _ = revoked
    monkeypatch.setattr(AbandonedPods, "_is_used", Mock(side_effect=LookupError("a defect")))
    heir.hand_over(heir.row(ti))
    try_again(heir)
    assert heir.runtime.take("create") == []
    heir.wait(DELETION_TIMEOUT)
    assert heir.created().launch_number == 1


def test_the_pod_of_the_phase_before_is_watched_until_it_has_ended(begun, successor, cluster):
    """Its task has deferred in the outage, and its next phase was handed in before the list."""
    ti, pod = begun
    heir = successor()
    cluster.outage = AWAY
    heir.adopt(ti)
    heir.set_state(ti, "queued")
    heir.hand_over(ti)
    assert heir.created()
    cluster.outage = None
    try_again(heir)
    assert pod.labels["airflow-worker"] == heir.label
    heir.observe(pod, m.succeeded())
    heir.quiet()
    assert heir.runtime.take("clean_up") == [(pod.ref,)]


def test_one_that_is_offered_again_is_adopted_after_all(revoked):
    heir, ti, pod = revoked
    heir.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    heir.adopt(ti)
    assert pod.labels["airflow-worker"] == heir.label
    try_again(heir)
    assert heir.runtime.take("delete") == []
    heir.observe(pod, m.start_error())
    assert heir.row(ti).state == "scheduled"
