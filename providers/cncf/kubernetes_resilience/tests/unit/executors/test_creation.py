# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Create calls that fail, and launches that are called off before they are answered."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from airflow.providers.cncf.kubernetes_resilience.executors import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.retirement import CREATION_TIMEOUT
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
REFUSED_FOR_NOW = [QUOTA, MODIFIED, TOO_OLD]
OUTAGE = [BUSY, LOST] + [KubernetesApiError("oops", status=status) for status in (500, 502, 503, 504)]
PASSING = REFUSED_FOR_NOW + OUTAGE
FOREIGN = PodConflictError(
    "pod default/x exists and belongs to another launch", status=409, reason="AlreadyExists"
)
LASTING = [
    KubernetesApiError('pods is forbidden: User "airflow"', status=403, reason="Forbidden"),
    KubernetesApiError('Pod "x" is invalid: spec.containers[0].image', status=422, reason="Invalid"),
    KubernetesApiError("namespaces not found", status=404, reason="NotFound"),
]


@pytest.fixture
def persistent(start):
    return start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="2")


def database_is_away(*args, **kwargs):
    raise OperationalError("SELECT 1", {}, Exception("the database is away"))


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


@pytest.mark.parametrize("error", OUTAGE, ids=str)
def test_an_outage_is_waited_out_and_is_no_attempt(harness, queued_ti, error):
    ti = queued_ti()
    begun = begin(harness, ti)
    for _ in range(5):
        harness.send(PodNotCreated(begun[0], error))
        wait(harness)
        assert harness.create_call() == begun
    assert (harness.events(), harness.occupied(ti)) == ({}, True)


@pytest.mark.parametrize("error", REFUSED_FOR_NOW, ids=str)
def test_a_refusal_is_final_by_default(harness, queued_ti, error):
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
    assert persistent.runtime.take("look_for") == []


def test_a_name_that_is_taken_is_changed_which_is_no_further_attempt(harness, queued_ti):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    harness.send(PodNotCreated(launch_id, FOREIGN))
    again, renamed = harness.create_call()
    assert again == launch_id
    names = [manifest["metadata"]["name"] for manifest in (body, renamed)]
    assert names[1].startswith(f"{names[0]}-")
    assert {**renamed["metadata"], "name": names[0]} == body["metadata"]
    pod = Pod(renamed)
    harness.send(PodCreated(launch_id, pod.ref))
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2


def test_a_name_is_changed_once(persistent, queued_ti):
    launch_id, _ = begin(persistent, queued_ti())
    persistent.send(PodNotCreated(launch_id, FOREIGN))
    persistent.create_call()
    persistent.send(PodNotCreated(launch_id, FOREIGN))
    assert persistent.runtime.take("create") == []
    ((state, info),) = persistent.events().values()
    assert (state, FOREIGN.message in info) == ("failed", True)


def test_a_task_that_was_taken_away_is_not_created_under_another_name(harness, queued_ti):
    ti = queued_ti()
    launch_id, _ = begin(harness, ti)
    harness.set_state(ti, "success")
    harness.send(PodNotCreated(launch_id, FOREIGN))
    assert (harness.runtime.take("create"), harness.occupied(ti)) == ([], False)


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


def give_up(harness, ti, error) -> tuple[str, dict]:
    """Let a creation be given up of which one call may have been carried out."""
    call = launch_id, _ = begin(harness, ti)
    harness.send(PodNotCreated(launch_id, error))
    wait(harness)
    assert harness.create_call() == call
    harness.send(PodNotCreated(launch_id, QUOTA))
    assert [state for state, _ in harness.events().values()] == ["failed"]
    return call


@pytest.mark.parametrize("error", [LOST, KubernetesApiError("gateway timeout", status=504)], ids=str)
def test_a_pod_that_may_exist_is_looked_for_when_its_creation_is_given_up(harness, queued_ti, error):
    launch_id, body = give_up(harness, queued_ti(), error)
    assert harness.runtime.take("look_for") == [("default", body["metadata"]["name"], launch_id)]


def test_a_pod_that_is_found_after_its_creation_was_given_up_is_deleted_and_waited_for(harness, queued_ti):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    harness.executor.revoke_task(ti=ti)
    harness.send(PodNotCreated(launch_id, LOST))
    pod = Pod(body)
    harness.send(PodCreated(launch_id, pod.ref))  # the answer to the look for it
    assert harness.runtime.take("delete") == [(pod.ref,)]
    harness.queue(ti)
    harness.executor.heartbeat()
    wait(harness, CREATION_TIMEOUT)
    assert harness.runtime.take("create") == []
    harness.deleted(pod.ref)
    assert harness.created()


def test_a_pod_that_comes_after_its_creation_was_given_up_is_deleted(harness, queued_ti):
    _, body = give_up(harness, queued_ti(), LOST)
    pod = Pod(body)
    harness.observe(pod, m.starting())
    assert harness.runtime.take("delete") == [(pod.ref,)]


@pytest.mark.parametrize("retries", ["0", "1"])
def test_a_creation_without_an_answer_whose_worker_runs_is_asked_for_until_it_is_answered(
    start, queued_ti, retries
):
    harness = start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES=retries)
    ti = queued_ti()
    call = launch_id, body = begin(harness, ti)
    pod = Pod(body)
    harness.begin(ti, pod)
    for _ in range(3):
        harness.send(PodNotCreated(launch_id, LOST))
        assert (harness.events(), harness.occupied(ti)) == ({}, True)
        wait(harness)
        assert harness.create_call() == call
    harness.send(PodNotCreated(launch_id, QUOTA))  # used up by that very pod
    wait(harness)
    assert harness.create_call() == call
    assert (harness.events(), harness.runtime.take("look_for")) == ({}, [])
    harness.send(PodCreated(launch_id, pod.ref))
    harness.observe(pod, m.out_of_memory())
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_a_creation_without_an_answer_is_given_up_silently_if_the_task_runs_in_another_pod(
    harness, queued_ti
):
    ti = queued_ti()
    first = harness.launch(ti)
    harness.observe(first, m.node_lost())
    launch_id, body = harness.create_call()
    harness.begin(ti, first)
    harness.send(PodNotCreated(launch_id, LOST))
    wait(harness)
    assert (harness.events(), harness.occupied(ti)) == ({}, False)
    assert harness.runtime.take("look_for") == [("default", body["metadata"]["name"], launch_id)]


def test_a_creation_is_not_given_up_while_the_database_is_away(harness, queued_ti, monkeypatch):
    ti = queued_ti()
    launch_id, _ = begin(harness, ti)
    with monkeypatch.context() as patch:
        patch.setattr(task_instances, "read_rows", database_is_away)
        harness.send(PodNotCreated(launch_id, QUOTA))
        assert (harness.events(), harness.occupied(ti)) == ({}, True)
    harness.executor.sync()
    assert [state for state, _ in harness.events().values()] == ["failed"]


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
    assert harness.runtime.take("look_for") == [("default", body["metadata"]["name"], launch_id)]
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


@pytest.mark.parametrize("error", [LOST, KubernetesApiError("gateway timeout", status=504)], ids=str)
def test_the_next_launch_waits_for_a_revoked_creation_that_may_still_be_carried_out(
    harness, queued_ti, error
):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    harness.executor.revoke_task(ti=ti)
    looked_for = harness.runtime.take("look_for")
    harness.queue(ti)
    harness.executor.heartbeat()
    harness.send(PodNotCreated(launch_id, error))
    assert harness.runtime.take("look_for") == looked_for, "the first look may have been too early"
    wait(harness, CREATION_TIMEOUT - 1)
    assert harness.runtime.take("create") == []
    pod = Pod(body)
    harness.observe(pod, m.starting())
    assert harness.runtime.take("delete") == [(pod.ref,)]
    harness.deleted(pod.ref)
    assert harness.created().launch_number == 1


def test_the_next_launch_does_not_wait_for_ever_for_a_creation_without_an_answer(harness, queued_ti):
    ti = queued_ti()
    begin(harness, ti)
    harness.executor.revoke_task(ti=ti)
    harness.queue(ti)
    harness.executor.heartbeat()
    wait(harness, CREATION_TIMEOUT)
    assert harness.created().launch_number == 1


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
    assert persistent.runtime.take("look_for") == []
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


def test_a_pod_of_an_earlier_call_that_has_gone_is_not_the_end_of_the_launch(harness, queued_ti):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    harness.send(PodNotCreated(launch_id, LOST))  # it was carried out all the same
    wait(harness)
    harness.create_call()
    first = harness.cluster.add(Pod(body))
    harness.observe(first, m.starting())
    harness.vanish(first)
    assert (harness.events(), harness.ledger(ti)) == ({}, []), "the second call is under way"

    second = harness.cluster.add(Pod(body))
    harness.observe(second, m.starting())
    harness.send(PodCreated(launch_id, second.ref))
    assert harness.runtime.take("confirm") == [(second.ref,)]
    assert (harness.events(), harness.ledger(ti), harness.runtime.take("create")) == ({}, [], [])
    harness.observe(second, m.evicted())
    (entry,) = harness.ledger(ti)
    assert entry["worker_uid"] == second.ref.uid


def test_it_is_when_the_other_call_has_failed(harness, queued_ti):
    ti = queued_ti()
    launch_id, body = begin(harness, ti)
    harness.send(PodNotCreated(launch_id, LOST))
    wait(harness)
    harness.create_call()
    pod = harness.cluster.add(Pod(body))
    harness.observe(pod, m.starting())
    harness.vanish(pod)
    harness.send(PodNotCreated(launch_id, LOST))
    (entry,) = harness.ledger(ti)
    assert entry["worker_uid"] == pod.ref.uid
    assert harness.created().launch_number == 2
