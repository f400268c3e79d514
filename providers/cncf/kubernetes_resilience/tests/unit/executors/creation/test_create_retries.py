# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Create calls that fail, and launches that are cancelled before they are answered."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import (
    ALONE,
    PUBLISH_BACKOFF,
    REFUSALS,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    CREATION_TIMEOUT,
    DELETION_TIMEOUT,
    UNKNOWN_VERSION,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    CreationCancelledError,
    KubernetesApiError,
    PodConflictError,
    PodNotFoundError,
    UnknownOwnerError,
    error_from_status,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodCreated,
    PodNotCreated,
    PodNotDeleted,
)
from airflow_resilience.propagation.database import read_failure

from ....support import manifests as m
from ....support.cluster import Pod
from ....support.harness import database_away, lock

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
    KubernetesApiError("the request is malformed", status=400, reason="BadRequest"),
    KubernetesApiError("limit is 3145728", status=413, reason="RequestEntityTooLarge"),
    KubernetesApiError('Pod "x" is invalid: spec.containers[0].image', status=422, reason="Invalid"),
    PodNotFoundError("namespaces not found", status=404, reason="NotFound"),
]
REFUSED_CREDENTIALS = [
    KubernetesApiError("Unauthorized", status=401, reason="Unauthorized"),
    KubernetesApiError('pods is forbidden: User "airflow"', status=403, reason="Forbidden"),
    UnknownOwnerError("409 AlreadyExists; looking for it: 403 Forbidden", status=403),
]
OF_A_PROXY = error_from_status(302, None, text="<html>moved")
NOT_THE_MANIFEST = [*REFUSED_CREDENTIALS, OF_A_PROXY, MODIFIED]
"""One of each kind: ``test_refused_create_calls.py`` has the others."""


@pytest.fixture
def persistent(start):
    return start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="2")


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_what_may_pass_is_tried_again_with_the_same_pod(persistent, queued_ti, error):
    ti = queued_ti()
    launch_id, body = persistent.call_for(ti)
    persistent.send(PodNotCreated(launch_id, error))
    assert persistent.events() == {}
    persistent.wait(30.1)
    assert persistent.create_call() == (launch_id, body)
    pod = Pod(body)
    persistent.send(PodCreated(launch_id, pod.facts()))
    persistent.observe(pod, m.evicted())
    assert persistent.created().launch_number == 2


def test_other_refusals_do_not_use_up_the_configured_repetitions(persistent, queued_ti):
    ti = queued_ti()
    persistent.hand_over(ti)
    for error in (*[REFUSED_CREDENTIALS[0]] * 3, QUOTA, QUOTA):
        persistent.refuse(error)
        assert persistent.ledger(ti) == []
        persistent.wait(30.1)
    persistent.refuse(QUOTA)
    assert len(persistent.ledger(ti)) == 1


@pytest.mark.parametrize("retries", [None, "1"])
def test_a_policy_is_asked_about_a_quota(start, queued_ti, with_policies, retries):
    """With repetitions that are configured, after these."""
    policies = with_policies(
        "policies: [{name: patient, rules: [{action: Retry, retryLimit: 5, onReasons: [RESOURCE_EXHAUSTION],"
        " backoff: {initialDelay: 100s, jitter: 0}}]}]\n"
        "selection: [{policy: patient, dagIds: ['*']}]\n"
    )
    options = {"KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": retries} if retries else {}
    harness = start(**policies, **options)
    ti = queued_ti()
    harness.hand_over(ti)
    for _ in range(int(retries or 0)):
        harness.refuse(QUOTA)
        assert harness.ledger(ti) == []
        harness.wait(30.1)
    harness.refuse(QUOTA)
    (entry,) = harness.ledger(ti)
    assert (entry["policy"], entry["delay"], harness.events()) == ("patient", 100.0, {})
    harness.wait(100.1)
    assert harness.created().launch_number == 2


def test_a_conflict_does_not_take_the_configured_repetitions_of_a_policy_for_its_own(
    start, queued_ti, with_policies
):
    """A file that says nothing of it leaves the option's meaning as it is."""
    policies = with_policies(
        "policies: [{name: other, rules: [{action: Retry, onReasons: [IMAGE_UNAVAILABLE]}]}]\n"
        "selection: [{policy: other, dagIds: ['*']}]\n"
    )
    harness = start(**policies, KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="0")
    ti = queued_ti()
    harness.hand_over(ti)
    harness.refuse(MODIFIED)
    assert [entry["policy"] for entry in harness.ledger(ti)] == ["built-in"]
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_a_name_that_is_taken_is_changed_which_is_no_further_attempt(harness, called):
    _, (launch_id, body) = called
    harness.send(PodNotCreated(launch_id, FOREIGN))
    again, renamed = harness.create_call()
    assert again == launch_id
    names = [manifest["metadata"]["name"] for manifest in (body, renamed)]
    assert names[1].startswith(f"{names[0]}-")
    assert {**renamed["metadata"], "name": names[0]} == body["metadata"]
    pod = Pod(renamed)
    harness.send(PodCreated(launch_id, pod.facts()))
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2


def test_a_name_is_changed_once(persistent, queued_ti):
    launch_id, _ = persistent.call_for(queued_ti())
    persistent.send(PodNotCreated(launch_id, FOREIGN))
    persistent.create_call()
    persistent.send(PodNotCreated(launch_id, FOREIGN))
    assert persistent.runtime.take("create") == []
    assert FOREIGN.message in persistent.failure()


def test_a_task_that_was_taken_away_is_not_created_under_another_name(harness, called):
    ti, (launch_id, _) = called
    harness.set_state(ti, "success")
    harness.send(PodNotCreated(launch_id, FOREIGN))
    assert (harness.runtime.take("create"), harness.occupied(ti)) == ([], False)


def test_attempts_can_be_unlimited(start, queued_ti):
    harness = start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="-1")
    begun = harness.call_for(queued_ti())
    for _ in range(20):
        harness.send(PodNotCreated(begun[0], QUOTA))
        harness.wait(30.1)
        launch_id, body = harness.create_call()
        assert (launch_id, body["metadata"]) == (begun[0], begun[1]["metadata"])
    assert harness.events() == {}


def test_the_servers_time_is_kept(persistent, queued_ti):
    launch_id, _ = persistent.call_for(queued_ti())
    persistent.send(PodNotCreated(launch_id, BUSY))
    persistent.wait(6.9)
    assert persistent.runtime.take("create") == []
    persistent.wait(0.2)
    assert persistent.create_call()[0] == launch_id


def test_the_servers_time_does_not_shorten_the_backoff(persistent, queued_ti):
    begun = persistent.call_for(queued_ti())
    for _ in range(5):
        persistent.send(PodNotCreated(begun[0], BUSY))
        persistent.wait(30.1)
        assert persistent.create_call() == begun
    persistent.send(PodNotCreated(begun[0], BUSY))
    persistent.wait(PUBLISH_BACKOFF.maximum * (1 - PUBLISH_BACKOFF.jitter) - 0.1)
    assert persistent.runtime.take("create") == []


def give_up(harness, ti, error) -> tuple[str, dict]:
    """Let a creation be given up of which one call may have been carried out."""
    call = launch_id, _ = harness.call_for(ti)
    harness.send(PodNotCreated(launch_id, error))
    harness.wait(30.1)
    assert harness.create_call() == call
    harness.send(PodNotCreated(launch_id, LASTING[0]))
    assert (harness.events(), harness.occupied(ti)) == ({}, True)
    return call


def stored(harness, ti):
    """Return what callbacks are told of why a task has failed."""
    return read_failure(ti.key, session=harness.session)


def find(harness, launch_id, pod) -> None:
    """Answer a look for the pod of a creation that was given up."""
    assert harness.runtime.take("look_for")
    harness.send(PodCreated(launch_id, pod.facts()))


@pytest.mark.parametrize("error", [LOST, KubernetesApiError("gateway timeout", status=504)], ids=str)
def test_a_pod_that_may_exist_is_looked_for_when_its_creation_is_given_up(harness, queued_ti, error):
    ti = queued_ti()
    launch_id, body = give_up(harness, ti, error)
    assert harness.runtime.take("look_for") == [("default", body["metadata"]["name"], launch_id)]
    harness.wait(CREATION_TIMEOUT)
    ((state, info),) = harness.events().values()
    assert (state, LASTING[0].message in info, harness.occupied(ti)) == ("failed", True, False)
    assert str(LASTING[0]) in stored(harness, ti).context.metadata["pod_message"]


def test_a_pod_that_is_found_after_its_creation_was_given_up_is_deleted_and_waited_for(harness, called):
    ti, (launch_id, body) = called
    harness.executor.revoke_task(ti=ti)
    harness.send(PodNotCreated(launch_id, LOST))
    pod = Pod(body)
    harness.send(PodCreated(launch_id, pod.facts()))  # the answer to the look for it
    assert harness.runtime.take("delete") == [(pod.ref,)]
    harness.hand_over(ti)
    harness.wait(CREATION_TIMEOUT)
    assert harness.runtime.take("create") == []
    harness.deleted(pod.ref)
    assert harness.created()


def test_a_pod_that_may_exist_is_waited_for_while_nobody_can_look_for_it(harness, called):
    ti, (launch_id, _) = called
    harness.executor.revoke_task(ti=ti)
    harness.send(PodNotCreated(launch_id, LOST))
    harness.hand_over(ti)
    harness.runtime.is_away = True
    harness.wait(CREATION_TIMEOUT - 1)
    harness.wait(CREATION_TIMEOUT - 1)
    harness.runtime.is_away = False
    harness.wait(CREATION_TIMEOUT - 1)
    assert harness.runtime.take("create") == []
    harness.wait(1)
    assert harness.created()


def test_a_pod_that_comes_after_its_creation_was_given_up_is_deleted(harness, queued_ti):
    launch_id, body = give_up(harness, queued_ti(), LOST)
    pod = Pod(body)
    assert harness.runtime.take("look_for")
    harness.observe(pod, m.starting())
    find(harness, launch_id, pod)
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, harness.label)]
    harness.wait(CREATION_TIMEOUT)
    assert harness.events() == {}
    harness.accepted(pod.ref)
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_a_task_whose_pod_has_started_after_its_creation_was_given_up_goes_on(harness, queued_ti):
    """The pod of a call without an answer has used up the quota, and the call after that was refused."""
    ti = queued_ti()
    launch_id, body = give_up(harness, ti, LOST)
    pod = harness.cluster.add(Pod(body))
    find(harness, launch_id, pod)
    harness.begin(ti, pod)
    harness.send(PodNotDeleted(pod.become(m.alive()).facts()))
    harness.wait(DELETION_TIMEOUT)
    assert (harness.events(), harness.occupied(ti), stored(harness, ti)) == ({}, True, None)
    harness.set_state(ti, "success")
    harness.observe(pod, m.succeeded())
    assert [state for state, _ in harness.events().values()] == ["success"]


@pytest.mark.parametrize("retries", ["0", "1"])
def test_a_creation_without_an_answer_whose_worker_runs_is_asked_for_until_it_is_answered(
    start, queued_ti, retries
):
    harness = start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES=retries)
    ti = queued_ti()
    call = launch_id, body = harness.call_for(ti)
    pod = Pod(body)
    harness.begin(ti, pod)
    for _ in range(3):
        harness.send(PodNotCreated(launch_id, LOST))
        assert (harness.events(), harness.occupied(ti)) == ({}, True)
        harness.wait(30.1)
        assert harness.create_call() == call
    harness.send(PodNotCreated(launch_id, QUOTA))  # used up by that very pod
    harness.wait(30.1)
    assert harness.create_call() == call
    assert (harness.events(), harness.runtime.take("look_for")) == ({}, [])
    harness.send(PodCreated(launch_id, pod.facts()))
    harness.observe(pod, m.out_of_memory())
    assert [state for state, _ in harness.events().values()] == ["failed"]


@pytest.mark.parametrize("answer", [LOST, QUOTA], ids=str)
def test_a_creation_without_an_answer_whose_task_was_cleared_while_it_ran_is_followed(
    harness, queued_ti, answer
):
    """Airflow waits for the end of the pod, and would wait for the heartbeat of a worker that has none."""
    ti = queued_ti()
    key, (launch_id, body) = ti.key, harness.call_for(ti)
    pod = harness.cluster.add(Pod(body))
    harness.begin(ti, pod)
    harness.send(PodNotCreated(launch_id, LOST))
    harness.begin_anew(ti, "restarting")
    harness.wait(30.1)
    assert harness.create_call() == (launch_id, body)
    harness.send(PodNotCreated(launch_id, answer))
    harness.wait(30.1)
    assert harness.create_call() == (launch_id, body)
    harness.send(PodCreated(launch_id, pod.become(m.alive()).facts()))
    harness.observe(pod, m.succeeded())
    assert {event: state for event, (state, _) in harness.events().items()} == {key: "success"}
    assert key not in harness.executor.running


def test_a_creation_without_an_answer_is_given_up_silently_if_the_task_runs_in_another_pod(harness, launched):
    ti, first = launched
    harness.observe(first, m.node_lost())
    launch_id, body = harness.create_call()
    harness.begin(ti, first)
    harness.send(PodNotCreated(launch_id, LOST))
    harness.wait(30.1)
    assert (harness.events(), harness.occupied(ti)) == ({}, False)
    assert harness.runtime.take("look_for") == [("default", body["metadata"]["name"], launch_id)]


def test_a_creation_without_an_answer_in_whose_pod_the_task_runs_under_a_host_that_says_nothing(
    harness, queued_ti
):
    """An address tells nothing of a pod that is not known, and the first launch's may be it."""
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.node_lost())
    launch_id, body = harness.create_call()
    pod = harness.cluster.add(Pod(body))
    harness.send(PodNotCreated(launch_id, LOST))
    harness.begin(ti, pod)
    harness.set_state(ti, "running", hostname="10.0.0.7")
    harness.wait(30.1)
    find(harness, launch_id, pod)
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, harness.label)]
    harness.send(PodNotDeleted(pod.become(m.alive()).facts()))
    assert (harness.runtime.take("delete"), harness.events()) == ([], {})


def test_a_pod_of_a_creation_that_counts_as_failed_is_followed_if_it_has_started(start, queued_ti):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="1")
    ti = queued_ti()
    launch_id, body = harness.call_for(ti)
    pod = harness.cluster.add(Pod(body))
    harness.send(PodNotCreated(launch_id, LOST))
    for _ in range(REFUSALS):
        harness.wait(30.1)
        harness.runtime.take("create")
        harness.send(PodNotCreated(launch_id, REFUSED_CREDENTIALS[0]))
    harness.wait(30.1)
    find(harness, launch_id, pod)
    harness.begin(ti, pod)
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, harness.label)]
    harness.send(PodNotDeleted(pod.become(m.alive()).facts()))
    harness.wait(CREATION_TIMEOUT)
    assert (harness.runtime.take("create"), harness.runtime.take("delete"), harness.events()) == ([], [], {})
    assert harness.registry.current(pod.uid)


@pytest.mark.parametrize("state", ["queued", "running"])
def test_the_pod_of_a_creation_without_an_answer_is_left_to_the_scheduler_that_has_adopted_it(
    harness, called, successor, state
):
    ti, (launch_id, body) = called
    pod = harness.cluster.add(Pod(body))
    harness.send(PodNotCreated(launch_id, LOST))
    heir = successor()
    assert heir.adopt(ti) == []
    if state == "running":
        heir.begin(ti, pod)
    harness.wait(30.1)
    assert (harness.occupied(ti), harness.runtime.take("create"), harness.runtime.take("look_for")) == (
        False,
        [],
        [],
    )
    # An answer that was under way for all that time names a pod that is not, or not any more, this one's.
    harness.send(PodCreated(launch_id, pod.facts()))
    assert harness.runtime.take("delete") in ([], [(pod.ref, UNKNOWN_VERSION, harness.label)])


def test_a_creation_is_not_given_up_while_the_database_is_away(harness, called):
    ti, (launch_id, _) = called
    with database_away(task_instances, "read_rows"):
        harness.send(PodNotCreated(launch_id, LASTING[0]))
        assert (harness.events(), harness.occupied(ti)) == ({}, True)
    harness.executor.sync()
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_a_refusal_that_comes_after_the_pod_was_seen_is_wrong(harness, called):
    ti, (launch_id, body) = called
    pod = Pod(body)
    harness.observe(pod, m.starting())
    harness.send(PodNotCreated(launch_id, LOST))
    assert (harness.events(), harness.occupied(ti)) == ({}, True)
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2


def test_the_next_launch_waits_for_a_creation_that_was_revoked(harness, called):
    ti, (launch_id, body) = called
    harness.executor.revoke_task(ti=ti)
    harness.hand_over(ti)
    assert harness.runtime.take("create") == []
    pod = Pod(body)
    harness.send(PodCreated(launch_id, pod.facts()))
    assert harness.runtime.take("create") == []
    harness.deleted(pod.ref)
    assert harness.created().launch_number == 1


@pytest.mark.parametrize("error", [LOST, KubernetesApiError("gateway timeout", status=504)], ids=str)
def test_the_next_launch_waits_for_a_revoked_creation_that_may_still_be_carried_out(harness, called, error):
    ti, (launch_id, body) = called
    harness.executor.revoke_task(ti=ti)
    looked_for = harness.runtime.take("look_for")
    harness.hand_over(ti)
    harness.send(PodNotCreated(launch_id, error))
    assert harness.runtime.take("look_for") == looked_for, "the first look may have been too early"
    harness.wait(CREATION_TIMEOUT - 1)
    assert harness.runtime.take("create") == []
    pod = Pod(body)
    harness.observe(pod, m.starting())
    harness.wait(2)
    assert harness.runtime.take("create") == []
    find(harness, launch_id, pod)
    assert harness.runtime.take("delete") == [(pod.ref,)]
    harness.deleted(pod.ref)
    assert harness.created().launch_number == 1


def test_the_next_launch_does_not_wait_for_ever_for_a_creation_without_an_answer(harness, queued_ti):
    ti = queued_ti()
    harness.call_for(ti)
    harness.executor.revoke_task(ti=ti)
    harness.hand_over(ti)
    harness.wait(CREATION_TIMEOUT)
    assert harness.created().launch_number == 1


def test_a_launch_that_is_revoked_while_it_waits_to_be_tried_again(persistent, queued_ti):
    ti = queued_ti()
    launch_id, _ = persistent.call_for(ti)
    persistent.send(PodNotCreated(launch_id, QUOTA))
    persistent.executor.revoke_task(ti=ti)
    persistent.wait(30.1)
    assert persistent.runtime.take("create") == []


def test_the_next_launch_does_not_wait_for_a_pod_that_was_refused(persistent, queued_ti):
    ti = queued_ti()
    launch_id, _ = persistent.call_for(ti)
    persistent.send(PodNotCreated(launch_id, QUOTA))
    persistent.executor.revoke_task(ti=ti)
    assert persistent.runtime.take("look_for") == []
    persistent.hand_over(ti)
    assert persistent.create_call()[0] != launch_id


def test_a_creation_under_way_when_the_task_comes_back_is_called_off(persistent, queued_ti):
    ti = queued_ti()
    first, body = persistent.call_for(ti)
    persistent.hand_over(ti)
    assert persistent.runtime.take("create") == []
    pod = Pod(body)
    persistent.send(PodCreated(first, pod.facts()))
    assert persistent.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, persistent.label)]
    persistent.deleted(pod.ref)
    assert persistent.create_call()[0] != first


def test_a_pod_of_an_earlier_call_that_has_gone_is_not_the_end_of_the_launch(harness, called):
    ti, (launch_id, body) = called
    harness.send(PodNotCreated(launch_id, LOST))  # it was carried out all the same
    harness.wait(30.1)
    harness.create_call()
    first = harness.cluster.add(Pod(body))
    harness.observe(first, m.starting())
    harness.vanish(first)
    assert (harness.events(), harness.ledger(ti)) == ({}, []), "the second call is under way"

    second = harness.cluster.add(Pod(body))
    harness.observe(second, m.starting())
    harness.send(PodCreated(launch_id, second.facts()))
    assert harness.runtime.take("confirm") == [(second.ref,)]
    assert (harness.events(), harness.ledger(ti), harness.runtime.take("create")) == ({}, [], [])
    harness.observe(second, m.evicted())
    (entry,) = harness.ledger(ti)
    assert entry["worker_uid"] == second.ref.uid


def test_it_is_when_the_other_call_has_failed(harness, called):
    ti, (launch_id, body) = called
    harness.send(PodNotCreated(launch_id, LOST))
    harness.wait(30.1)
    harness.create_call()
    pod = harness.cluster.add(Pod(body))
    harness.observe(pod, m.starting())
    harness.vanish(pod)
    harness.send(PodNotCreated(launch_id, LOST))
    (entry,) = harness.ledger(ti)
    assert entry["worker_uid"] == pod.ref.uid
    assert harness.created().launch_number == 2


# ---------------------------------------------------------------- refused, and not for the manifest's fault


def refuse_for_good(harness, call: tuple[str, dict], error) -> None:
    """Refuse each create call of a launch, until it is given up."""
    for _ in range(REFUSALS - 1):
        harness.send(PodNotCreated(call[0], error))
        assert harness.events() == {}
        harness.wait(30.1)
        assert harness.create_call()[0] == call[0]
    harness.send(PodNotCreated(call[0], error))
    harness.executor.sync()


@pytest.mark.parametrize("error", NOT_THE_MANIFEST, ids=str)
def test_what_is_not_the_manifests_fault_is_waited_out(harness, called, error):
    ti, begun = called
    for _ in range(5):
        harness.send(PodNotCreated(begun[0], error))
        assert (harness.events(), harness.occupied(ti)) == ({}, True)
        harness.wait(30.1)
        assert harness.create_call() == begun
    pod = Pod(begun[1])
    harness.send(PodCreated(begun[0], pod.facts()))
    assert (harness.ledger(ti), harness.events()) == ([], {})


@pytest.mark.parametrize("error", NOT_THE_MANIFEST, ids=str)
def test_it_is_a_launch_failure_then(harness, called, error):
    ti, call = called
    refuse_for_good(harness, call, error)
    (entry,) = harness.ledger(ti)
    assert (entry["worker_uid"], entry["action"]) == (call[0], "relaunch")
    assert "uid" not in entry["context"]["metadata"]
    if error.leaves_open:
        harness.wait(CREATION_TIMEOUT)
    assert harness.created().launch_number == 2
    assert (harness.events(), harness.occupied(ti)) == ({}, True)


@pytest.mark.parametrize("outage", [BUSY, LOST], ids=str)
def test_an_outage_in_between_neither_counts_nor_has_the_count_begin_anew(harness, called, outage):
    ti, call = called
    for error in [REFUSED_CREDENTIALS[1], outage] * (REFUSALS - 1):
        harness.send(PodNotCreated(call[0], error))
        harness.wait(30.1)
        assert harness.create_call()[0] == call[0]
    assert harness.ledger(ti) == []
    harness.send(PodNotCreated(call[0], REFUSED_CREDENTIALS[1]))
    assert [entry["context"]["metadata"]["cause"] for entry in harness.ledger(ti)] == [
        "api-refused-credentials"
    ]


def test_refusals_of_several_kinds_come_to_an_end_together(harness, called):
    ti, call = called
    kinds = [REFUSED_CREDENTIALS[0], OF_A_PROXY, MODIFIED]
    for number in range(REFUSALS - 1):
        harness.send(PodNotCreated(call[0], kinds[number % len(kinds)]))
        harness.wait(30.1)
        assert harness.create_call()[0] == call[0]
    harness.send(PodNotCreated(call[0], MODIFIED))
    assert [entry["context"]["metadata"]["cause"] for entry in harness.ledger(ti)] == ["creation-conflict"]


def test_a_refusal_after_a_call_without_an_answer_whose_worker_runs_ends_nothing(harness, called):
    ti, call = called
    harness.send(PodNotCreated(call[0], LOST))
    harness.wait(30.1)
    assert harness.create_call()[0] == call[0]
    for _ in range(REFUSALS - 1):
        harness.send(PodNotCreated(call[0], REFUSED_CREDENTIALS[1]))
        harness.wait(30.1)
        assert harness.create_call()[0] == call[0]
    with lock(ti):  # it is not settled in the turn in which it is given up
        harness.send(PodNotCreated(call[0], REFUSED_CREDENTIALS[1]))
        harness.executor.sync()
    harness.begin(ti, Pod(call[1]))
    harness.executor.sync()
    assert (harness.ledger(ti), harness.events(), harness.occupied(ti)) == ([], {}, True)
    for _ in range(2):
        harness.wait(30.1)
    assert harness.create_call()[0] == call[0], "it goes on to ask for what it has lost sight of"
    pod = harness.cluster.add(Pod(call[1]))
    harness.send(PodCreated(call[0], pod.facts()))
    harness.observe(pod, m.alive())
    harness.set_state(ti, "success")
    harness.observe(pod, m.succeeded())
    assert not harness.occupied(ti)


# ---------------------------------------------------------------- what fails for one pod alone

TOO_LARGE = KubernetesApiError("etcdserver: request is too large", status=500, reason="InternalError")


def fail_for(harness, call, error, seconds: float, others=()) -> float:
    """Let each create call fail, and others be created now and then; return for how long it was repeated."""
    began = harness.clock.now
    others = iter(others)
    while harness.clock.now - began < seconds:
        if ti := next(others, None):
            harness.launch(ti)
        harness.send(PodNotCreated(call[0], error))
        harness.wait(30.0)
        again = harness.runtime.take("create")
        if [launch_id for launch_id, _ in again] != [call[0]]:
            break
    return harness.clock.now - began


def test_what_fails_for_everybody_is_waited_out(harness, called):
    ti, call = called
    assert fail_for(harness, call, TOO_LARGE, 3 * ALONE) == 3 * ALONE
    assert (harness.ledger(ti), harness.events()) == ([], {})


def test_an_outage_between_two_pods_of_others_is_waited_out(harness, queued_ti):
    ti = queued_ti()
    call = harness.call_for(ti)
    fail_for(harness, call, BUSY, 60, [queued_ti("before")])
    fail_for(harness, call, BUSY, 3 * ALONE)
    fail_for(harness, call, BUSY, 60, [queued_ti("after")])
    assert (harness.ledger(ti), harness.events()) == ([], {})


# ---------------------------------------------------------------- tokens


def test_a_create_call_that_is_repeated_late_has_a_fresh_token(harness, queued_ti, time_machine):
    time_machine.move_to("2026-11-01T00:00:00Z", tick=False)
    launch_id, first = harness.call_for(queued_ti())
    for seconds, is_fresh in ((150, False), (60, True), (150, False)):
        time_machine.shift(seconds)
        harness.send(PodNotCreated(launch_id, LOST))
        harness.wait(seconds)
        again, body = harness.create_call()
        assert again == launch_id
        assert (Pod(body).claims["exp"] > Pod(first).claims["exp"]) is is_fresh
        assert {**body, "spec": None} == {**first, "spec": None}
        first = body


def test_wherever_the_mutation_hook_has_put_it(harness, queued_ti, monkeypatch, time_machine):
    def hook(pod):
        base = pod.spec.containers[0]
        base.args = ["sh", "-c", " ".join(base.args)]

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    time_machine.move_to("2026-11-01T00:00:00Z", tick=False)
    launch_id, first = harness.call_for(queued_ti())
    time_machine.shift(500)
    harness.send(PodNotCreated(launch_id, LOST))
    harness.wait(500)
    _, body = harness.create_call()
    old, new = (manifest["spec"]["containers"][0]["args"][2] for manifest in (first, body))
    assert old != new
    assert len(old) == len(new)


# ---------------------------------------------------------------- cancelled before it was sent


def test_a_creation_that_is_revoked_is_called_off(harness, called):
    ti, (launch_id, _) = called
    harness.executor.revoke_task(ti=ti)
    assert [command.__name__ for command, _ in harness.runtime.commands[-2:]] == ["cancel", "look_for"]
    assert harness.runtime.take("cancel") == [(launch_id,)]
    harness.hand_over(ti)
    assert harness.runtime.take("create") == []
    harness.send(PodNotCreated(launch_id, CreationCancelledError("cancelled")))
    assert harness.created().launch_number == 1


@pytest.mark.parametrize(("error", "is_certain"), [(BUSY, True), (LOST, False)], ids=str)
def test_that_is_certain_unless_a_call_before_had_no_answer(harness, called, error, is_certain):
    ti, (launch_id, _) = called
    harness.send(PodNotCreated(launch_id, error))
    harness.wait(30.1)
    harness.create_call()
    harness.executor.revoke_task(ti=ti)
    harness.hand_over(ti)
    harness.send(PodNotCreated(launch_id, CreationCancelledError("cancelled")))
    assert bool(harness.runtime.take("create")) is is_certain
