# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods that another scheduler has labelled, or whose task instance another scheduler has."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from sqlalchemy.exc import OperationalError
from uuid6 import uuid7

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import UNKNOWN_VERSION
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import (
    UNFOLLOWED_INTERVAL,
)
from airflow.providers.cncf.kubernetes_resilience.executors.reconciler import CHECK_INTERVAL
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import ConnectionFailedError
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodNotCreated,
    PodObservation,
)
from airflow_resilience import ledger
from airflow_resilience.retry_policy.evidence import Phase
from cluster_lab.apiserver.selectors import parse_selector

from ....support import manifests as m
from ....support.cluster import Pod
from ....support.entries import lost
from ....support.harness import OTHER_JOB, database_away, lock
from .test_executions import present

EPOCH = "1970-01-01T00:00:00Z"
"""What a kubelet says of the start of a container that could not be started."""


def relabelled(harness, pod) -> None:
    """Let another scheduler put its label on a pod, and this one learn of it."""
    pod.labels["airflow-worker"] = str(OTHER_JOB)
    harness.lose_sight(pod)
    harness.send(*(PodConfirmed(ref, pod.facts()) for (ref,) in harness.runtime.take("confirm")))


def relabels(harness) -> list[tuple[str, str]]:
    return [(ref.name, labels["airflow-worker"]) for ref, labels in harness.runtime.take("adopt")]


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_launch_whose_row_is_still_ours_is_labelled_again(harness, launched, state):
    ti, pod = launched
    harness.set_state(ti, state, hostname=pod.name)
    relabelled(harness, pod)

    assert relabels(harness) == [(pod.name, harness.label)]
    assert (harness.occupied(ti), harness.events()) == (True, {})
    pod.labels["airflow-worker"] = harness.label
    harness.observe(pod, m.start_error())
    assert len(harness.ledger(ti)) == (state == "queued")


def test_its_failure_meanwhile_is_not_overlooked(harness, launched):
    ti, pod = launched
    pod.become(m.start_error())
    relabelled(harness, pod)
    harness.executor.sync()
    assert len(harness.ledger(ti)) == 1


def test_a_pod_that_nothing_is_heard_of_after_that_is_asked_about(harness, queued_ti):
    pod = harness.launch(queued_ti())
    relabelled(harness, pod)
    harness.wait(61)
    assert harness.runtime.take("confirm") == [(pod.ref,)]


def test_a_launch_whose_row_is_anothers_is_released(harness, launched):
    ti, pod = launched
    harness.set_state(ti, "running", hostname=pod.name, queued_by_job_id=None)
    relabelled(harness, pod)
    assert (relabels(harness), harness.occupied(ti), harness.events()) == ([], False, {})


def test_a_launch_that_has_ended_here_and_whose_row_is_anothers_leaves_its_pod(start, queued_ti):
    """Airflow missed the heartbeat of its worker, while its scheduler was late itself, and it was adopted."""
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2")
    ti = queued_ti()
    pod = harness.run(ti)
    harness.executor.change_state(ti.key, "failed", remove_running=True)
    pod.labels["airflow-worker"] = str(OTHER_JOB)
    harness.lose_sight(pod)  # a turn before the adoption is committed
    harness.set_state(ti, "running", queued_by_job_id=None)
    harness.send(*(PodConfirmed(ref, pod.facts()) for (ref,) in harness.runtime.take("confirm")))
    harness.wait(1)
    assert (harness.occupied(ti), harness.events(), harness.runtime.take("delete")) == (False, {}, [])


def test_a_task_that_restarts_is_known_by_its_key(harness, launched):
    ti, pod = launched
    harness.begin(ti, pod)
    harness.begin_anew(ti, "restarting")
    relabelled(harness, pod)
    assert relabels(harness) == [(pod.name, harness.label)]
    assert harness.occupied(ti)


def test_a_row_that_is_being_adopted_is_not_waited_for(harness, launched):
    """The other scheduler has it locked until it commits, or not."""
    ti, pod = launched
    with lock(ti):
        relabelled(harness, pod)
    assert relabels(harness) == [(pod.name, harness.label)]


def test_a_pod_that_has_not_started_is_released_if_its_row_is_anothers(harness, queued_ti):
    """This scheduler was paused; another one has adopted the pod, and has yet to put its label on it."""
    ti = queued_ti()
    harness.launch(ti)
    harness.set_state(ti, "queued", queued_by_job_id=None)
    harness.wait(10)
    assert harness.runtime.take("delete") == []
    assert (harness.occupied(ti), harness.events()) == (False, {})


def test_a_pod_that_was_adopted_stays_until_the_adoption_is_committed(harness, queued_ti, successor):
    ti = queued_ti()
    harness.launch(ti)
    heir = successor()
    heir.executor.try_adopt_task_instances([ti])
    heir.session.rollback()
    heir.executor.sync()
    heir.wait(10)
    assert heir.runtime.take("delete") == []


@pytest.mark.parametrize(
    ("state", "is_marked_done"),
    [("queued", False), ("running", False), ("deferred", False), ("success", True), ("up_for_retry", True)],
)
def test_a_failed_pod_of_another_schedulers_task_instance_is_left_to_it(
    harness, queued_ti, state, is_marked_done
):
    """It has this scheduler's label since an adoption that was rolled back."""
    ti = queued_ti()
    stray = Pod(harness.launch(ti).manifest)
    harness.set_state(ti, state, queued_by_job_id=OTHER_JOB)
    harness.observe(stray, m.worker_error())
    harness.quiet()
    assert ((stray.ref,) in harness.runtime.take("mark_done")) is is_marked_done
    assert harness.ledger(ti) == []


def test_a_failed_pod_is_marked_done_when_its_task_instance_is_nobodys_any_more(harness, launched):
    """The other scheduler has launched another pod, and knows nothing of this one."""
    ti, pod = launched
    harness.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    harness.observe(pod, m.worker_error())
    assert not harness.occupied(ti)
    harness.set_state(ti, "success")
    harness.wait(UNFOLLOWED_INTERVAL)
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(pod.ref,)]
    harness.wait(UNFOLLOWED_INTERVAL)
    harness.quiet()
    assert harness.runtime.take("mark_done") == []


@pytest.mark.parametrize(
    ("like", "command"),
    [
        (m.succeeded(), "clean_up"),
        (m.worker_error(), "mark_done"),
        (m.lingering(m.COMPLETED), "clean_up"),
        (m.lingering(), "stop_and_keep"),
        (m.lingering(m.terminated(128, "StartError", startedAt=EPOCH)), "stop_and_keep"),
    ],
    ids=["succeeded", "failed", "done beside a sidecar", "failed beside a sidecar", "not started beside one"],
)
def test_a_pod_in_which_another_schedulers_task_runs_is_left_to_it(harness, begun, like, command):
    """It has been adopted and has yet to get its label. How it ended is all that is known of its worker."""
    ti, pod = begun
    harness.set_state(ti, "running", queued_by_job_id=OTHER_JOB)
    harness.observe(pod, like)
    for _ in range(3):
        harness.wait(UNFOLLOWED_INTERVAL)
    commands = ("clean_up", "mark_done", "stop_and_keep", "delete")
    assert (harness.occupied(ti), [name for name in commands if harness.runtime.take(name)]) == (False, [])
    harness.set_state(ti, "success")
    harness.wait(UNFOLLOWED_INTERVAL)
    harness.quiet()
    assert harness.runtime.take(command) == [(pod.ref,)]


def cleaned_up(harness) -> list[str]:
    harness.quiet()
    commands = ("clean_up", "mark_done", "stop_and_keep", "delete")
    return [name for name in commands if harness.runtime.take(name)]


def test_a_pod_that_was_left_stays_when_its_sidecar_ends(harness, begun):
    ti, pod = begun
    harness.set_state(ti, "running", queued_by_job_id=OTHER_JOB)
    harness.observe(pod, m.lingering(m.COMPLETED))
    harness.wait(SIDECAR_GRACE)
    assert not harness.occupied(ti)
    harness.observe(pod, m.succeeded())
    assert cleaned_up(harness) == []


def test_a_pod_of_a_task_that_restarts_under_another_scheduler_is_left_to_it(harness, begun):
    """That task has another UUID, and its scheduler is told the end of its worker by this pod."""
    ti, pod = begun
    harness.set_state(ti, "running", queued_by_job_id=OTHER_JOB)
    harness.observe(pod, m.worker_error())
    harness.begin_anew(ti, "restarting")
    harness.wait(UNFOLLOWED_INTERVAL)
    assert cleaned_up(harness) == []


def test_a_pod_that_was_left_and_is_adopted_again_is_followed(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2")
    ti = queued_ti()
    pod = harness.run(ti)
    harness.set_state(ti, "running", queued_by_job_id=OTHER_JOB)
    harness.observe(pod, m.lingering(m.COMPLETED))
    harness.wait(SIDECAR_GRACE)
    harness.wait(UNFOLLOWED_INTERVAL - 4)
    harness.adopt(ti)
    harness.wait(10)
    assert (harness.occupied(ti), cleaned_up(harness)) == (True, [])


def test_the_pod_of_a_phase_before_is_cleaned_up_after_an_adoption(harness, begun):
    """Its row is due while its task is adopted again, in another pod, and the informer says nothing anew."""
    ti, pod = begun
    harness.set_state(ti, "queued")
    harness.queue(ti)  # its next phase, before its worker has ended
    harness.executor.heartbeat()
    second = harness.created()
    harness.observe(second, m.alive())
    harness.set_state(ti, "running", queued_by_job_id=OTHER_JOB, hostname=second.name)
    harness.observe(pod, m.succeeded())
    harness.executor.sync()
    harness.clock.advance(UNFOLLOWED_INTERVAL)
    harness.adopt(ti)
    harness.wait(1)
    harness.set_state(ti, "success")
    harness.observe(second, m.succeeded())
    harness.wait(UNFOLLOWED_INTERVAL)
    harness.quiet()
    assert {ref for (ref,) in harness.runtime.take("clean_up")} == {pod.ref, second.ref}


@pytest.mark.parametrize("was_seen", [False, True], ids=["after", "before"])
def test_the_sidecar_of_a_phase_before_has_its_grace(harness, begun, was_seen):
    """The task has deferred, and its worker is seen to end after its next phase was queued, or before."""
    ti, pod = begun
    if was_seen:
        harness.observe(pod, m.lingering(m.COMPLETED))
    harness.set_state(ti, "queued")
    harness.hand_over(ti)
    if not was_seen:
        harness.observe(pod, m.lingering(m.COMPLETED))
    assert cleaned_up(harness) == []
    harness.wait(SIDECAR_GRACE)
    assert cleaned_up(harness) == ["clean_up"]


@pytest.fixture(params=[True, False], ids=["known", "late"])
def unstarted(request, harness, queued_ti):
    """Give a task instance that another scheduler has adopted before it had a pod, and the pod it has now."""
    ti = queued_ti(retries=1)
    launch_id, body = harness.call_for(ti)
    pod = harness.cluster.add(Pod(body))
    answer = (
        PodCreated(launch_id, pod.facts())
        if request.param
        else PodNotCreated(launch_id, ConnectionFailedError(""))
    )
    harness.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    harness.send(answer)
    harness.observe(pod, m.unscheduled())
    harness.wait(CHECK_INTERVAL)
    assert not harness.occupied(ti)
    return ti, pod


@pytest.mark.parametrize("next_try", [False, True])
def test_one_that_never_starts_is_deleted_when_its_try_is_over(harness, unstarted, next_try):
    ti, pod = unstarted
    harness.set_state(ti, "success")
    if next_try:
        harness.begin_anew(ti, "queued", try_number=2)
    harness.wait(UNFOLLOWED_INTERVAL)
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, harness.label)]
    harness.wait(UNFOLLOWED_INTERVAL)
    assert cleaned_up(harness) == []


@pytest.mark.parametrize("next_try", [False, True])
def test_so_is_one_whose_task_instance_has_lost_its_worker_and_ran_again(harness, unstarted, next_try):
    """Its worker has started, and was lost, while nothing of that was heard here."""
    ti, pod = unstarted
    key, before, after = ti.key, str(ti.id), str(uuid7())
    harness.set_state(ti, "running")
    task_instances.run_again({before: after}, session=harness.session)
    loss = lost(phase=Phase.EXECUTION, ti_id=before, next_ti_id=after)
    ledger.record([(key, loss)], session=harness.session)
    harness.session.commit()
    if next_try:
        harness.begin_anew(present(harness, key), "queued", try_number=2)
    harness.wait(UNFOLLOWED_INTERVAL)
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, harness.label)]


def test_a_pod_that_is_gone_is_not_asked_about(harness, launched, monkeypatch):
    """The scheduler that has its task instance need not have heard of that."""
    ti, pod = launched
    harness.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    harness.vanish(pod)
    assert not harness.occupied(ti)
    asked = Mock(wraps=task_instances.read_over)
    monkeypatch.setattr(task_instances, "read_over", asked)
    harness.wait(UNFOLLOWED_INTERVAL)
    assert not asked.called


def test_so_is_one_whose_task_instance_is_in_another_try_under_the_same_uuid(harness, unstarted):
    ti, pod = unstarted
    harness.set_state(ti, "queued", try_number=2)
    harness.wait(UNFOLLOWED_INTERVAL)
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION, harness.label)]


@pytest.mark.parametrize("state", ["scheduled", "queued", "running", "deferred"])
def test_until_then_it_is_left(harness, unstarted, state):
    ti, _ = unstarted
    harness.set_state(ti, state)
    harness.wait(UNFOLLOWED_INTERVAL)
    assert cleaned_up(harness) == []


def test_the_sidecar_of_one_that_starts_after_all_has_its_grace(harness, unstarted):
    ti, pod = unstarted
    harness.wait(1)
    harness.wait(UNFOLLOWED_INTERVAL - 1)
    harness.observe(pod, m.alive())
    harness.set_state(ti, "success")
    harness.observe(pod, m.lingering(m.COMPLETED))
    harness.wait(SIDECAR_GRACE - 1)
    assert cleaned_up(harness) == []
    harness.wait(1)
    assert cleaned_up(harness) == ["clean_up"]


def test_one_that_has_not_started_and_may_be_of_another_deployment_is_left(harness, queued_ti):
    stray = Pod(harness.launch(queued_ti()).manifest)
    stray.annotations["airflow-resilience/task-instance-id"] = "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"
    harness.observe(stray, m.starting())
    harness.wait(UNFOLLOWED_INTERVAL)
    assert cleaned_up(harness) == []


def test_a_failed_pod_that_is_gone_or_has_another_label_is_not_asked_about(harness, launched):
    ti, pod = launched
    harness.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    harness.observe(pod, m.worker_error())
    harness.lose_sight(pod)
    harness.set_state(ti, "success")
    harness.wait(UNFOLLOWED_INTERVAL)
    harness.quiet()
    assert harness.runtime.take("mark_done") == []


def test_a_failed_pod_waits_for_the_database_to_say_whose_it_is(harness, queued_ti, monkeypatch):
    stray = Pod(harness.launch(queued_ti()).manifest)
    with monkeypatch.context() as patch:
        patch.setattr(
            task_instances, "read_rows", Mock(side_effect=OperationalError("SELECT", {}, OSError()))
        )
        harness.observe(stray, m.worker_error())
        harness.quiet()
        assert harness.runtime.take("mark_done") == []
    harness.wait(1)
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(stray.ref,)]


# ------------------------------------------------------------------------------- two executors of a scheduler


def selects(harness, pod) -> bool:
    """Whether the informer of an executor sees a pod."""
    selector = parse_selector(harness.runtime.settings.label_selector)
    return all(requirement.matches(pod.labels) for requirement in selector)


def test_two_executors_of_a_scheduler_see_their_own_pods_only(harness, queued_ti, start, monkeypatch):
    from airflow.executors.executor_utils import ExecutorName

    from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

    monkeypatch.setattr(KubernetesExecutor, "name", ExecutorName("path.to.KubernetesExecutor", alias="other"))
    other = start(harness.executor.job_id)
    first, second = queued_ti(mapped=2)
    ours, theirs = harness.launch(first), other.launch(second)
    assert [selects(harness, pod) for pod in (ours, theirs)] == [True, False]
    assert [selects(other, pod) for pod in (ours, theirs)] == [False, True]


def test_a_pod_that_is_adopted_gets_the_label_of_the_executor_too(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    del pod.labels["airflow-resilience/executor"]
    heir = successor()
    heir.adopt(ti)
    assert selects(heir, pod)


# ------------------------------------------------------------- found when its launch is not known any more


@pytest.fixture
def released(harness, queued_ti):
    """Give a pod that another has labelled, of a launch that was released, and the answer about it."""
    ti = queued_ti()
    launch_id, body = harness.call_for(ti)
    pod = harness.cluster.add(Pod(body))
    harness.inbox.put(PodObservation(pod.facts()))
    harness.set_state(ti, "queued", queued_by_job_id=None)
    relabelled(harness, pod)
    assert not harness.occupied(ti)
    return ti, pod, PodCreated(launch_id, pod.facts())


@pytest.mark.parametrize("state", ["queued", "running", "success"])
def test_an_answer_that_comes_late_about_a_pod_that_another_has_adopted_deletes_nothing(
    harness, released, state
):
    ti, _, answer = released
    harness.set_state(ti, state)
    harness.send(answer)
    assert harness.runtime.take("delete") == []


@pytest.mark.parametrize("row_is_ours", [True, False])
def test_a_pod_that_another_has_labelled_in_vain_is_deleted_once_the_database_answers(
    harness, released, row_is_ours
):
    ti, pod, answer = released
    if row_is_ours:
        harness.set_state(ti, "queued", queued_by_job_id=harness.executor.job_id)
    with database_away(task_instances, "read_rows"):
        harness.send(answer)
    assert harness.runtime.take("delete") == []
    harness.executor.sync()
    assert harness.runtime.take("delete") == (
        [(pod.ref, UNKNOWN_VERSION, str(OTHER_JOB))] if row_is_ours else []
    )


def test_a_pod_whose_row_cannot_be_read_is_left(harness, released, monkeypatch):
    _, _, answer = released
    monkeypatch.setattr(task_instances, "read_rows", Mock(side_effect=LookupError("a defect")))
    harness.send(answer)
    for _ in range(6):
        harness.wait(10)
    assert harness.runtime.take("delete") == []
    assert harness.parts.superseded_pods._created == {}
