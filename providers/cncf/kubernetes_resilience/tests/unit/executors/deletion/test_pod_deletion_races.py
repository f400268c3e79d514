# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods that were given up on while they were Pending, and start before they are deleted."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors import isolation
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    DELETION_TIMEOUT,
    UNKNOWN_VERSION,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures import judge
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    CreationCancelledError,
    KubernetesApiError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodNotCreated,
    PodNotDeleted,
    PodObservation,
)
from airflow_resilience.propagation.database import read_failure

from ....support import manifests as m
from ....support.cluster import Pod
from ....support.harness import OTHER_JOB, lock

CONFIG = {"KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS": "RunContainerError"}
FAIL = """\
policies:
  - name: strict
    rules:
      - {name: broken, action: Fail, onReasons: [RunContainerError]}
defaultPolicy: strict
"""
REFUSED = KubernetesApiError("no", status=422)
STARTED = m.pod("Running", [m.base(m.running())])


def at_version(pod, version: str, like=None):
    """Return a pod's facts at a version, with the status of a manifest."""
    if like:
        pod.become(like)
    pod.manifest["metadata"]["resourceVersion"] = version
    return pod.facts()


def give_up(harness, pod) -> None:
    harness.send(PodObservation(at_version(pod, "7", m.not_startable())))


@pytest.fixture
def given_up(start, queued_ti):
    """Give an executor, a task instance whose pod was given up on while it was Pending, and the pod."""
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    give_up(harness, pod)
    return harness, ti, pod


def seen(harness, pod, like) -> None:
    """The informer sees the pod start before its deletion is carried out."""
    harness.send(PodObservation(at_version(pod, "8", like)))
    harness.send(PodNotDeleted(pod.facts()))


def not_deleted(harness, pod, like) -> None:
    """The deletion finds that the pod has changed."""
    harness.send(PodNotDeleted(at_version(pod, "8", like)))


learns = pytest.mark.parametrize("learns", [seen, not_deleted])


def test_it_is_deleted_at_the_version_of_the_decision_when_the_thread_has_crashed_too(given_up):
    harness, _, pod = given_up
    harness.runtime.crash()
    harness.executor.sync()
    assert harness.runtime.take("delete") == [(pod.ref, "7", harness.label)]


@pytest.fixture
def labelled_by_another(given_up):
    """Give a pod that was given up on, and that has another scheduler's label when it is to be deleted."""
    harness, ti, pod = given_up
    harness.runtime.take("delete")
    pod.labels["airflow-worker"] = str(OTHER_JOB)
    return harness, ti, pod


def test_it_is_left_if_another_scheduler_has_adopted_it(labelled_by_another):
    harness, ti, pod = labelled_by_another
    harness.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    not_deleted(harness, pod, m.starting())
    harness.wait(10)
    assert harness.runtime.take("delete") == []
    assert harness.registry.departing_of(ti.key) == []


def test_it_is_deleted_if_another_scheduler_has_labelled_it_in_vain(labelled_by_another):
    """An adoption labels the pods, and may fail then. The row says whose the task instance is."""
    harness, _, pod = labelled_by_another
    not_deleted(harness, pod, m.starting())
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, str(OTHER_JOB))]
    assert harness.runtime.take("create") == []
    harness.send(PodConfirmed(pod.ref, None))
    harness.wait(10)
    assert len(harness.runtime.take("create")) == 1


def test_it_is_deleted_if_it_is_labelled_in_vain_when_nobody_waits_for_it_any_more(labelled_by_another):
    harness, ti, pod = labelled_by_another
    harness.wait(DELETION_TIMEOUT + 1)
    assert harness.registry.departing_of(ti.key) == []
    harness.runtime.take("delete")
    not_deleted(harness, pod, m.starting())
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, str(OTHER_JOB))]


def test_it_is_deleted_if_its_label_is_ours_again(labelled_by_another):
    """The deletion has the label of an adoption that has failed as its condition."""
    harness, _, pod = labelled_by_another
    not_deleted(harness, pod, m.starting())
    harness.runtime.take("delete")
    pod.labels["airflow-worker"] = harness.label
    not_deleted(harness, pod, m.starting())
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, harness.label)]
    assert harness.runtime.take("create") == []


def test_it_is_followed_again_if_it_has_another_label_in_vain_and_has_started(labelled_by_another):
    harness, ti, pod = labelled_by_another
    not_deleted(harness, pod, STARTED)
    assert harness.registry.departing_of(ti.key) == []
    assert harness.registry.get(ti.key).ref == pod.ref
    assert [ref for ref, _ in harness.runtime.take("adopt")] == [pod.ref]
    assert harness.runtime.take("delete") == harness.runtime.take("create") == []


@learns
def test_one_that_has_started_is_not_replaced(given_up, learns):
    harness, ti, pod = given_up
    learns(harness, pod, STARTED)
    harness.wait(DELETION_TIMEOUT + 1)
    assert harness.runtime.take("create") == []
    assert (harness.events(), harness.occupied(ti), len(harness.ledger(ti))) == ({}, True, 1)
    harness.begin(ti, pod)
    harness.observe(pod, m.alive())
    harness.set_state(ti, "success")
    harness.observe(pod, m.succeeded())
    assert [state for state, _ in harness.events().values()] == ["success"]
    assert not harness.occupied(ti)


@learns
def test_its_end_while_the_task_runs_is_the_tasks(given_up, learns):
    harness, ti, pod = given_up
    learns(harness, pod, STARTED)
    harness.begin(ti, pod)
    harness.observe(pod, m.out_of_memory())
    assert "OOMKilled" in harness.failure()
    assert len(harness.ledger(ti)) == 1


@learns
def test_its_end_before_the_task_runs_is_decided_anew_and_counted_once(given_up, learns):
    harness, ti, pod = given_up
    learns(harness, pod, STARTED)
    harness.observe(pod, m.evicted())
    rows = harness.ledger(ti)
    assert [(row["reason"], row["action"], row["launch"]) for row in rows] == [
        ("RunContainerError", "relaunch", 1),
        ("Evicted", "relaunch", 1),
    ]
    assert {row["worker_uid"] for row in rows} == {pod.ref.uid}
    second = harness.created()
    assert second.launch_number == 2
    harness.observe(second, m.evicted())
    assert [row["action"] for row in harness.ledger(ti)] == ["relaunch", "relaunch", "count"]


@learns
@pytest.mark.parametrize("like", [m.out_of_memory(), m.worker_error(), m.succeeded()])
def test_one_that_has_ended_by_then_is_judged_by_its_end(given_up, learns, like):
    harness, ti, pod = given_up
    learns(harness, pod, like)
    assert len(harness.ledger(ti)) == 2
    assert len(harness.ledger(ti)) == len({row["reason"] for row in harness.ledger(ti)})


def test_one_that_has_ended_and_never_started_is_one_failure_too(given_up):
    harness, ti, pod = given_up
    harness.send(PodNotDeleted(at_version(pod, "8", m.evicted())))
    assert [row["reason"] for row in harness.ledger(ti)] == ["RunContainerError", "Evicted"]
    assert harness.created().launch_number == 2


def test_one_whose_replacement_exists_is_left_alone_and_not_waited_for(given_up):
    harness, ti, pod = given_up
    harness.wait(DELETION_TIMEOUT + 1)
    second = harness.created()
    harness.runtime.take("delete")
    seen(harness, pod, STARTED)
    assert harness.runtime.take("delete") == []
    harness.begin(ti, pod)
    harness.observe(second, m.worker_error())  # it has lost the start
    assert harness.events() == {}


def test_one_whose_task_was_taken_away_is_deleted_all_the_same(given_up):
    harness, ti, pod = given_up
    harness.runtime.take("delete")
    harness.executor.revoke_task(ti=ti)
    assert harness.runtime.take("delete") == [(pod.ref,)]
    seen(harness, pod, STARTED)
    harness.hand_over(ti)
    assert harness.runtime.take("create") == [], "its deletion is still waited for"
    harness.deleted(pod.ref)
    assert harness.created()


def test_one_whose_task_was_cleared_is_deleted_all_the_same(given_up):
    harness, ti, pod = given_up
    harness.runtime.take("delete")
    harness.set_state(ti, None)
    for _ in range(3):
        harness.wait(11)
    assert harness.runtime.take("delete") == [(pod.ref,)]
    seen(harness, pod, STARTED)
    assert (harness.events(), harness.occupied(ti)) == ({}, False)


def test_one_that_is_being_deleted_is_waited_for(given_up):
    harness, ti, pod = given_up
    harness.observe(pod, m.pod("Running", [m.base(m.running())], deleted=True))
    assert harness.runtime.take("create") == []
    harness.vanish(pod)
    assert harness.created().launch_number == 2
    assert len(harness.ledger(ti)) == 1


def test_a_next_phase_that_was_handed_in_is_not_called_off(given_up):
    harness, ti, pod = given_up
    harness.hand_over(ti)
    not_deleted(harness, pod, STARTED)
    assert harness.created().launch_number == 2


class TestAPodOfAnOpenCreateCall:
    """The task is taken back while its create call is under way, and queued again."""

    @pytest.fixture
    def cancelled(self, start, queued_ti):
        harness = start(**CONFIG)
        ti = queued_ti()
        launch_id, body = harness.call_for(ti)
        harness.runtime.crash()  # one call may be carried out, and is repeated
        harness.executor.sync()
        harness.runtime.take("create")
        harness.executor.revoke_task(ti=ti)
        harness.hand_over(ti)
        return harness, launch_id, body

    @pytest.mark.parametrize("order", [1, -1], ids=["seen first", "refused first"])
    def test_is_waited_for_whatever_becomes_of_the_repeated_call(self, cancelled, cluster, order):
        harness, launch_id, body = cancelled
        pod = cluster.add(Pod(body))
        refused = PodNotCreated(launch_id, CreationCancelledError("in time"))
        harness.send(*[PodObservation(pod.facts()), refused][::order])
        harness.wait(1)
        assert harness.runtime.take("create") == []
        harness.send(PodCreated(launch_id, pod.facts()))
        assert harness.runtime.take("delete") == [(pod.ref,)]
        harness.deleted(pod.ref)
        assert len(harness.runtime.take("create")) == 1

    def test_may_be_the_second(self, cancelled, cluster):
        harness, launch_id, body = cancelled
        first = cluster.add(Pod(body))
        harness.send(PodObservation(first.facts()))
        harness.vanish(first)
        second = cluster.add(Pod(body))
        harness.wait(1)
        assert harness.runtime.take("create") == []
        harness.send(PodCreated(launch_id, second.facts()))
        assert harness.runtime.take("delete") == [(second.ref,)]


@pytest.fixture
def unclear(start, queued_ti):
    """Give an executor, and a create call that had no answer and was repeated."""
    harness = start(**CONFIG)
    launch_id, body = harness.call_for(queued_ti())
    harness.send(PodNotCreated(launch_id, ConnectionFailedError("reset")))
    harness.wait(40)
    return harness, launch_id, body


def test_one_that_no_informer_has_seen_is_asked_about_when_it_is_followed_again(unclear):
    harness, launch_id, body = unclear
    harness.send(PodNotCreated(launch_id, REFUSED))
    pod = harness.cluster.add(Pod(body))
    harness.send(PodCreated(launch_id, pod.facts()))
    not_deleted(harness, pod, STARTED)
    assert harness.runtime.take("confirm") == []
    harness.wait(61)
    assert harness.runtime.take("confirm") == [(pod.ref,)]


def test_one_that_has_failed_before_its_call_has_found_it_is_no_other_failure(unclear):
    harness, launch_id, body = unclear
    harness.send(PodNotCreated(launch_id, REFUSED))
    pod = harness.cluster.add(Pod(body)).become(m.out_of_memory())
    harness.send(PodCreated(launch_id, pod.facts()))
    assert harness.runtime.take("delete") == []
    harness.wait(1)
    ((key, (state, why)),) = harness.events().items()
    assert (state, "refused" in why) == ("failed", True)
    assert [entry["reason"] for entry in harness.ledger(key)] == ["CreationForbidden"]


def test_one_that_is_found_after_its_launch_could_not_be_released_is_deleted(unclear, monkeypatch):
    """The deletion that was noted by then looks for the pod of a create call."""
    harness, launch_id, body = unclear
    with monkeypatch.context() as patch:
        patch.setattr(LaunchQueue, "fail", lambda *_: 1 / 0)
        harness.send(PodNotCreated(launch_id, REFUSED))
    pod = harness.cluster.add(Pod(body))
    harness.send(PodCreated(launch_id, pod.facts()))
    harness.wait(10)
    give_up(harness, pod)
    harness.wait(10)
    assert harness.runtime.take("delete") == [(pod.ref, "7", harness.label)]


def test_one_beside_the_adopted_one_does_not_speak_for_the_task(given_up, successor):
    """The host name says nothing of pods, and the worker that loses the start fails."""
    harness, ti, first = given_up
    harness.deleted(first.ref)
    second = harness.created()
    harness.cluster.add(first)
    at_version(first, "9", m.starting())
    heir = successor(**CONFIG, KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="5")
    heir.adopt(ti)
    give_up(heir, second)
    heir.observe(first, STARTED)
    heir.observe(second, STARTED)
    heir.set_state(ti, "running", hostname="a-name-that-is-no-pod-s")
    heir.observe(first, m.worker_error())
    heir.wait(5)
    assert heir.events() == {}
    assert heir.row(ti).state == "running"


class TestGivenUpForGood:
    """A task whose launch is not repeated has failed when its pod cannot start any more, and not before."""

    @pytest.fixture(params=["count", "fail"])
    def config(self, request, with_policies):
        if request.param == "count":
            return CONFIG | {"KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": "0"}
        return CONFIG | with_policies(FAIL)

    @pytest.fixture
    def failing(self, start, queued_ti, config):
        """Give an executor, a task instance whose only pod was given up on, and that pod."""
        harness = start(**config)
        ti = queued_ti(retries=1)
        pod = harness.launch(ti)
        give_up(harness, pod)
        return harness, ti, pod

    def nothing_is_told(self, harness, ti):
        told = read_failure(ti.key, session=harness.session)
        is_unchanged = harness.occupied(ti) and harness.row(ti).max_tries == 1
        return is_unchanged and (harness.events(), told) == ({}, None)

    def has_failed(self, harness, ti):
        """Whether that is told, once, and the row says so before Airflow has its callbacks run."""
        events = [(state, "RunContainerError" in info) for state, info in harness.events().values()]
        (entry,) = harness.ledger(ti)
        told = read_failure(ti.key, session=harness.session)
        return (
            events == [("failed", True)]
            and not harness.occupied(ti)
            and harness.row(ti).max_tries == (1 if entry["action"] == "count" else 0)
            and told.context.metadata["phase"] == "Pending"
        )

    @pytest.mark.parametrize("goes", ["accepted", "deleted", "vanish"])
    def test_it_has_failed_when_its_pod_is_gone_or_goes(self, failing, goes):
        harness, ti, pod = failing
        assert harness.runtime.take("delete") == [(pod.ref, "7", harness.label)]
        assert self.nothing_is_told(harness, ti)
        getattr(harness, goes)(pod if goes == "vanish" else pod.ref)
        assert self.has_failed(harness, ti)
        harness.wait(DELETION_TIMEOUT + 1)
        assert (harness.events(), harness.runtime.take("create")) == ({}, [])

    def test_it_has_failed_if_the_deletion_is_never_accepted(self, failing):
        harness, ti, _ = failing
        harness.wait(DELETION_TIMEOUT - 1)
        assert self.nothing_is_told(harness, ti)
        harness.wait(2)
        assert self.has_failed(harness, ti)

    @learns
    @pytest.mark.parametrize("is_late", [False, True])
    def test_one_that_starts_first_goes_on(self, failing, learns, is_late):
        harness, ti, pod = failing
        if is_late:
            harness.begin(ti, pod)  # its worker has reported before its kubelet has
        learns(harness, pod, STARTED)
        harness.wait(DELETION_TIMEOUT + 1)
        assert self.nothing_is_told(harness, ti)
        harness.begin(ti, pod)
        harness.set_state(ti, "success")
        harness.observe(pod, m.succeeded())
        assert [state for state, _ in harness.events().values()] == ["success"]
        assert not harness.occupied(ti)

    def test_a_row_that_is_locked_is_told_of_later(self, failing):
        harness, ti, pod = failing
        with lock(ti):
            harness.accepted(pod.ref)
            assert (harness.events(), harness.occupied(ti)) == ({}, True)
        harness.executor.sync()
        assert self.has_failed(harness, ti)

    def test_a_task_that_was_cleared_meanwhile_has_not_failed(self, failing):
        harness, ti, pod = failing
        harness.set_state(ti, None)
        harness.accepted(pod.ref)
        assert (harness.events(), harness.occupied(ti)) == ({}, False)

    def test_one_that_was_taken_away_and_queued_again_fails_then(self, failing):
        """Airflow takes away what is queued for too long, and queues it again in the same try."""
        harness, ti, pod = failing
        harness.executor.revoke_task(ti=ti)
        harness.hand_over(ti)
        harness.accepted(pod.ref)
        assert harness.events() == {}, "the next launch waits until the pod is gone"
        harness.deleted(pod.ref)
        assert self.has_failed(harness, ti)
        assert harness.runtime.take("create") == []

    def test_a_scheduler_that_ends_leaves_it_to_the_next(self, failing, successor, config):
        harness, ti, pod = failing
        harness.executor.end()
        assert harness.events() == {}
        heir = successor(**config)
        heir.take_over(ti)
        assert self.nothing_is_told(heir, ti)
        heir.accepted(pod.ref)
        assert self.has_failed(heir, ti)

    def test_the_next_scheduler_tells_of_it_if_its_pod_is_gone(self, failing, successor, config):
        harness, ti, pod = failing
        harness.cluster.remove(pod)
        heir = successor(**config)
        heir.adopt(ti)
        assert heir.row(ti).state == "scheduled"
        heir.requeue(ti)
        assert self.has_failed(heir, ti)

    @pytest.mark.parametrize("state", ["failed", "deferred"])
    def test_its_deletion_is_not_asked_for_again_if_nobody_wants_the_report(self, failing, state):
        harness, ti, pod = failing
        harness.runtime.take("delete")
        harness.set_state(ti, state)
        harness.accepted(pod.ref)
        assert harness.runtime.take("delete") == []
        assert (harness.events(), harness.occupied(ti)) == ({}, False)

    @pytest.mark.parametrize("step", ["settle", "act"])
    def test_one_that_cannot_be_handled_has_failed_no_sooner(self, start, queued_ti, monkeypatch, step):
        harness = start(**CONFIG)
        ti = queued_ti()
        pod = harness.launch(ti)
        owner, name = (judge, "assess") if step == "settle" else (LaunchQueue, "relaunch")
        monkeypatch.setattr(owner, name, lambda *args, **options: 1 / 0)
        give_up(harness, pod)
        for _ in range(isolation.ATTEMPTS):
            harness.wait(10)
        assert (harness.events(), harness.occupied(ti)) == ({}, True)
        harness.accepted(pod.ref)
        ((state, info),) = harness.events().values()
        assert (state, "ZeroDivisionError" in info, harness.occupied(ti)) == ("failed", True, False)


class TestAdopted:
    @pytest.fixture
    def heir(self, given_up, successor):
        """Give the successor of a scheduler that has died after it had given a pod up."""
        _, ti, pod = given_up
        return successor(**CONFIG), ti, pod

    def test_it_is_given_up_at_the_version_that_it_has_now(self, heir):
        heir, ti, pod = heir
        at_version(pod, "9", m.starting())
        heir.take_over(ti)
        assert heir.runtime.take("delete") == [(pod.ref, "9", heir.label)]

    @learns
    def test_it_is_followed_again_while_its_task_waits_to_be_handed_back(self, heir, learns):
        heir, ti, pod = heir
        at_version(pod, "9", m.starting())
        heir.take_over(ti)
        learns(heir, pod, STARTED)
        heir.wait(DELETION_TIMEOUT + 1)
        assert (heir.row(ti).state, heir.occupied(ti)) == ("queued", True)
        heir.observe(pod, m.evicted())
        assert [row["reason"] for row in heir.ledger(ti)] == ["RunContainerError", "Evicted"]
        heir.executor.sync()
        assert heir.row(ti).state == "scheduled"

    def test_one_that_has_started_is_followed(self, heir):
        heir, ti, pod = heir
        pod.become(STARTED)
        heir.take_over(ti)
        assert (heir.runtime.take("delete"), heir.row(ti).state) == ([], "queued")
        heir.begin(ti, pod)
        heir.observe(pod, m.out_of_memory())
        assert [state for state, _ in heir.events().values()] == ["failed"]

    def test_one_that_starts_before_it_is_settled_is_not_deleted(self, heir):
        heir, ti, pod = heir
        at_version(pod, "9", m.starting())
        heir.offer(ti)
        heir.inbox.put(PodObservation(at_version(pod, "10", STARTED)))
        heir.executor.sync()
        heir.executor.sync()
        assert (pod.ref,) not in heir.runtime.take("delete")

    def test_one_that_is_being_deleted_is_not(self, heir):
        heir, ti, pod = heir
        pod.become(m.pod("Running", [m.base(m.running())], deleted=True))
        heir.take_over(ti)
        heir.send(PodConfirmed(pod.ref, None))
        assert len(heir.ledger(ti)) == 1

    def test_a_superseded_one_that_has_not_started_is_deleted_at_its_version(self, given_up, successor):
        harness, ti, first = given_up
        harness.deleted(first.ref)
        harness.created()
        at_version(first, "9", m.starting())
        heir = successor(**CONFIG)
        heir.adopt(ti)
        assert heir.runtime.take("delete") == [(first.ref, "9")]
        not_deleted(heir, first, STARTED)
        assert (heir.runtime.take("delete"), heir.occupied(ti)) == ([], True)
