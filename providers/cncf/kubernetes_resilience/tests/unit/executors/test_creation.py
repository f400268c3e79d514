# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Create calls that fail, and launches that are called off before they are answered."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.errors import (
    ConnectionFailedError,
    KubernetesApiError,
    PodConflictError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodCreated, PodNotCreated

from .. import manifests as m
from .cluster import Pod

QUOTA = KubernetesApiError('pods "x" is forbidden: exceeded quota: tasks', status=403, reason="Forbidden")
MODIFIED = PodConflictError("the object has been modified; please apply", status=409, reason="Conflict")
TOO_OLD = KubernetesApiError("too old resource version", status=410, reason="Expired")
BUSY = KubernetesApiError("too many requests", status=429, retry_after=7.0)
LOST = ConnectionFailedError("connection reset by peer")
PASSING = [QUOTA, MODIFIED, TOO_OLD, BUSY, LOST] + [
    KubernetesApiError("oops", status=status) for status in (500, 502, 503, 504)
]
FOREIGN = PodConflictError(
    "pod default/x exists and belongs to another launch", status=409, reason="AlreadyExists"
)
LASTING = [
    KubernetesApiError('pods is forbidden: User "airflow"', status=403, reason="Forbidden"),
    KubernetesApiError('Pod "x" is invalid: spec.containers[0].image', status=422, reason="Invalid"),
    KubernetesApiError("namespaces not found", status=404, reason="NotFound"),
    FOREIGN,
]


@pytest.fixture
def persistent(start):
    return start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="2")


def begin(harness, ti) -> tuple[str, dict]:
    harness.queue(ti)
    harness.executor.heartbeat()
    return harness.create_call()


def wait(harness, seconds: float = 30.1) -> None:
    harness.clock.advance(seconds)
    harness.executor.sync()


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_what_may_pass_is_tried_again_with_the_same_pod(persistent, queued_ti, error):
    ti = queued_ti()
    launch_id, body = begin(persistent, ti)
    persistent.send(PodNotCreated(launch_id, error))
    assert persistent.events() == {}
    wait(persistent)
    assert persistent.create_call() == (launch_id, body)
    pod = Pod(body)
    persistent.send(PodCreated(launch_id, pod.ref))
    persistent.observe(pod, m.evicted())
    assert persistent.created().launch_number == 2


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_nothing_is_tried_again_by_default(harness, queued_ti, error):
    ti = queued_ti()
    launch_id, _ = begin(harness, ti)
    harness.send(PodNotCreated(launch_id, error))
    ((state, info),) = harness.events().values()
    assert state == "failed"
    assert error.message in info
    assert not harness.occupied(ti)
    assert harness.ledger(ti) == []
    wait(harness)
    assert harness.runtime.take("create") == []


@pytest.mark.parametrize("error", LASTING, ids=str)
def test_what_will_not_pass_fails_at_once(persistent, queued_ti, error):
    launch_id, body = begin(persistent, queued_ti())
    persistent.send(PodNotCreated(launch_id, error))
    ((state, info),) = persistent.events().values()
    assert state == "failed"
    assert error.message in info
    assert body["metadata"]["name"] in info
    assert persistent.runtime.take("delete_by_name") == []


def test_attempts_are_limited(persistent, queued_ti):
    begun = begin(persistent, queued_ti())
    for _ in range(2):
        persistent.send(PodNotCreated(begun[0], QUOTA))
        wait(persistent)
        assert persistent.create_call() == begun
    persistent.send(PodNotCreated(begun[0], QUOTA))
    assert [state for state, _ in persistent.events().values()] == ["failed"]


def test_attempts_can_be_unlimited(start, queued_ti):
    harness = start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="-1")
    begun = begin(harness, queued_ti())
    for _ in range(20):
        harness.send(PodNotCreated(begun[0], QUOTA))
        wait(harness)
        assert harness.create_call() == begun
    assert harness.events() == {}


def test_the_servers_time_is_kept(persistent, queued_ti):
    launch_id, _ = begin(persistent, queued_ti())
    persistent.send(PodNotCreated(launch_id, BUSY))
    wait(persistent, 6.9)
    assert persistent.runtime.take("create") == []
    wait(persistent, 0.2)
    assert persistent.create_call()[0] == launch_id


@pytest.mark.parametrize("error", [LOST, KubernetesApiError("gateway timeout", status=504)], ids=str)
def test_a_pod_that_may_exist_is_deleted_when_its_creation_is_given_up(harness, queued_ti, error):
    launch_id, body = begin(harness, queued_ti())
    harness.send(PodNotCreated(launch_id, error))
    assert harness.runtime.take("delete_by_name") == [("default", body["metadata"]["name"], launch_id)]


def test_a_pod_that_comes_after_its_creation_was_given_up_is_deleted(harness, queued_ti):
    launch_id, body = begin(harness, queued_ti())
    harness.send(PodNotCreated(launch_id, LOST))
    pod = Pod(body)
    harness.observe(pod, m.starting())
    assert harness.runtime.take("delete") == [(pod.ref,)]


def test_a_refusal_that_comes_after_the_pod_was_seen_is_wrong(harness, queued_ti):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    pod = Pod(body)
    harness.observe(pod, m.starting())
    harness.send(PodNotCreated(launch_id, LOST))
    assert (harness.events(), harness.occupied(ti)) == ({}, True)
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2


def test_a_launch_that_is_revoked_while_it_is_created(harness, queued_ti):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    harness.executor.revoke_task(ti=ti)
    assert harness.runtime.take("delete_by_name") == [("default", body["metadata"]["name"], launch_id)]
    pod = Pod(body)
    harness.send(PodCreated(launch_id, pod.ref))
    assert harness.runtime.take("delete") == [(pod.ref,)]
    assert (harness.events(), harness.occupied(ti)) == ({}, False)


def test_the_next_launch_waits_for_a_creation_that_was_revoked(harness, queued_ti):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    harness.executor.revoke_task(ti=ti)
    harness.queue(ti)
    harness.executor.heartbeat()
    assert harness.runtime.take("create") == []
    pod = Pod(body)
    harness.send(PodCreated(launch_id, pod.ref))
    assert harness.runtime.take("create") == []
    harness.deleted(pod.ref)
    assert harness.created().launch_number == 1


def test_the_next_launch_does_not_wait_for_a_revoked_creation_that_failed(harness, queued_ti):
    ti = queued_ti()
    launch_id, _ = begin(harness, ti)
    harness.executor.revoke_task(ti=ti)
    harness.queue(ti)
    harness.executor.heartbeat()
    harness.send(PodNotCreated(launch_id, QUOTA))
    assert harness.created().launch_number == 1
    assert harness.events() == {}


def test_a_launch_that_is_revoked_while_it_waits_to_be_tried_again(persistent, queued_ti):
    ti = queued_ti()
    launch_id, _ = begin(persistent, ti)
    persistent.send(PodNotCreated(launch_id, QUOTA))
    persistent.executor.revoke_task(ti=ti)
    wait(persistent)
    assert persistent.runtime.take("create") == []


def test_the_next_launch_does_not_wait_for_a_pod_that_was_refused(persistent, queued_ti):
    ti = queued_ti()
    launch_id, _ = begin(persistent, ti)
    persistent.send(PodNotCreated(launch_id, QUOTA))
    persistent.executor.revoke_task(ti=ti)
    assert persistent.runtime.take("delete_by_name") == []
    persistent.queue(ti)
    persistent.executor.heartbeat()
    assert persistent.create_call()[0] != launch_id


def test_a_task_that_is_not_queued_any_more_is_not_tried_again(persistent, queued_ti):
    ti = queued_ti()
    launch_id, _ = begin(persistent, ti)
    persistent.send(PodNotCreated(launch_id, QUOTA))
    persistent.set_state(ti, "success")
    wait(persistent)
    assert persistent.runtime.take("create") == []
    assert not persistent.occupied(ti)


def test_a_creation_under_way_when_the_task_comes_back_is_called_off(persistent, queued_ti):
    ti = queued_ti()
    first, body = begin(persistent, ti)
    persistent.queue(ti)
    persistent.executor.heartbeat()
    assert persistent.runtime.take("create") == []
    pod = Pod(body)
    persistent.send(PodCreated(first, pod.ref))
    assert persistent.runtime.take("delete") == [(pod.ref,)]
    persistent.deleted(pod.ref)
    assert persistent.create_call()[0] != first
