# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A scheduler was killed; another one takes its task instances over."""

from __future__ import annotations

import json

import pytest
from airflow.jobs.job import Job
from sqlalchemy import update

from airflow.providers.cncf.kubernetes_resilience.executors.adoption import adopter
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed, PodObservation
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m


def own_label(harness) -> str:
    return str(harness.executor.job_id)


def test_a_pod_that_lives_is_adopted(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.begin(ti, pod)
    heir = successor()

    assert heir.adopt(ti) == []
    assert pod.labels["airflow-worker"] == own_label(heir)
    assert heir.occupied(ti)
    heir.observe(pod, m.alive())
    heir.observe(pod, m.out_of_memory())
    ((key, (state, info)),) = heir.events().items()
    assert (key, state) == (ti.key, "failed")
    assert "OOMKilled" in info
    assert not heir.occupied(ti)


def test_the_newest_launch_is_adopted_and_the_others_are_retired(harness, queued_ti, successor):
    ti = queued_ti()
    first = harness.launch(ti)
    harness.observe(first, m.start_error())  # the command to take it out of sight is lost with the scheduler
    second = harness.created()
    heir = successor()

    assert heir.adopt(ti) == []
    heir.executor.sync()
    assert second.labels["airflow-worker"] == own_label(heir)
    heir.quiet()
    assert heir.runtime.take("mark_done") == [(first.ref,)]
    heir.send(PodObservation(first.facts()))
    assert (heir.events(), heir.occupied(ti)) == ({}, True)


def test_a_retired_launch_is_deleted_if_that_is_configured(harness, queued_ti, successor):
    ti = queued_ti()
    first = harness.launch(ti)
    harness.observe(first, m.start_error())
    harness.created()
    heir = successor(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE="True")
    heir.adopt(ti)
    heir.quiet()
    assert heir.runtime.take("clean_up") == [(first.ref,)]


def test_an_older_launch_that_could_still_start_is_deleted(harness, queued_ti, successor):
    ti = queued_ti()
    first = harness.launch(ti).created("2026-01-01T00:00:00Z")
    harness.executor.revoke_task(ti=ti)
    harness.accepted(first.ref)
    harness.clock.advance(60)
    second = harness.launch(ti)
    heir = successor()

    heir.adopt(ti)
    assert heir.runtime.take("delete") == [(first.ref,)]
    assert second.labels["airflow-worker"] == own_label(heir)


def test_the_launch_that_runs_the_task_is_adopted_also_if_it_is_not_the_newest(harness, queued_ti, successor):
    ti = queued_ti()
    first = harness.launch(ti).created("2026-01-01T00:00:00Z")
    harness.executor.revoke_task(ti=ti)
    harness.accepted(first.ref)
    harness.clock.advance(60)
    second = harness.launch(ti)
    harness.begin(ti, first)
    heir = successor()

    heir.adopt(ti)
    assert first.labels["airflow-worker"] == own_label(heir)
    assert heir.runtime.take("delete") == [(second.ref,)]


def test_a_failed_launch_that_is_adopted_is_scheduled_again_in_the_same_try(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).become(m.start_error())
    heir = successor()

    heir.adopt(ti)
    heir.executor.sync()
    row = heir.row(ti)
    assert (row.state, row.queued_dttm, row.queued_by_job_id) == ("scheduled", None, None)
    assert (row.try_number, row.max_tries) == (1, 0)
    (entry,) = heir.ledger(ti)
    assert (entry["worker_uid"], entry["action"]) == (pod.ref.uid, "relaunch")
    assert not heir.occupied(ti)
    assert heir.events() == {}
    heir.quiet()
    assert heir.runtime.take("mark_done") == [(pod.ref,)]


def test_the_count_goes_on_in_the_next_scheduler(harness, queued_ti, successor):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.start_error())
    second = harness.created().become(m.evicted())
    heir = successor()

    heir.adopt(ti)
    heir.executor.sync()
    ((state, info),) = heir.events().values()
    assert state == "failed"
    assert "Evicted" in info
    assert "launch 2 of 2" in info
    assert [entry["worker_uid"] for entry in heir.ledger(ti)][-1] == second.ref.uid


def test_a_relaunch_that_was_decided_but_not_made_is_not_counted_twice(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.start_error())  # decided and written; the create call is lost with the scheduler
    heir = successor()

    heir.adopt(ti)
    heir.executor.sync()
    assert heir.row(ti).state == "scheduled"
    assert len(heir.ledger(ti)) == 1
    heir.set_state(ti, "queued", queued_by_job_id=heir.executor.job_id)
    second = heir.launch(ti)
    assert second.launch_number == 2
    heir.observe(second, m.start_error())
    assert [state for state, _ in heir.events().values()] == ["failed"]


def test_a_relaunch_that_was_decided_is_made_whatever_the_old_pod_says_now(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.image_pull_error())  # decided and written; the scheduler dies with the rest
    assert len(harness.ledger(ti)) == 1
    pod.become(m.image_pull_error("ImagePullBackOff"))  # which alone is no reason to give a pod up
    heir = successor()

    heir.adopt(ti)
    heir.observe(pod)
    assert heir.runtime.take("delete") == [(pod.ref,)]
    heir.deleted(pod.ref)
    assert (heir.row(ti).state, len(heir.ledger(ti))) == ("scheduled", 1)


def test_a_final_failure_that_was_not_reported_is_reported(harness, queued_ti, start, successor):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.worker_error())
    assert len(harness.events()) == 1  # the scheduler is killed before it has acted on it
    heir = successor()

    heir.adopt(ti)
    heir.executor.sync()
    assert [state for state, _ in heir.events().values()] == ["failed"]
    assert len(heir.ledger(ti)) == 1


def test_a_queued_task_without_pod_is_scheduled_again(harness, queued_ti, successor):
    ti = queued_ti()
    heir = successor()

    assert heir.adopt(ti) == []
    heir.executor.sync()
    row = heir.row(ti)
    assert (row.state, row.queued_dttm, row.queued_by_job_id) == ("scheduled", None, None)
    assert (row.try_number, heir.ledger(ti)) == (1, [])
    assert not heir.occupied(ti)


def test_a_running_task_without_pod_is_reset(harness, queued_ti, successor):
    ti = queued_ti()
    harness.set_state(ti, "running")
    heir = successor()

    assert heir.adopt(ti) == [ti]
    assert not heir.occupied(ti)


def test_a_task_that_no_scheduler_has_queued_is_reset(harness, queued_ti, successor):
    ti = queued_ti()
    harness.set_state(ti, "running", queued_by_job_id=None)
    heir = successor()

    assert list(heir.executor.try_adopt_task_instances([ti])) == [ti]


def test_the_scheduler_does_not_wait_until_the_pods_are_relabelled(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()

    assert heir.offer(ti) == []
    assert heir.occupied(ti)
    assert pod.labels["airflow-worker"] != str(heir.executor.job_id)
    heir.runtime.carry_out("Adopter")
    assert pod.labels["airflow-worker"] == str(heir.executor.job_id)


def test_a_pod_that_fails_before_it_is_relabelled(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()
    heir.offer(ti)
    pod.become(m.start_error())
    heir.runtime.carry_out("Adopter")
    heir.observe(pod)
    heir.executor.sync()

    assert heir.row(ti).state == "scheduled"
    assert len(heir.ledger(ti)) == 1


def test_many_are_held_as_they_are_relabelled(harness, queued_ti, successor, monkeypatch):
    tis = queued_ti(mapped=3)
    pods = [harness.launch(ti) for ti in tis]
    heir = successor()
    monkeypatch.setattr(adopter, "RELABEL_BATCH", 1)
    relabel, held = heir.runtime.launcher.adopt, []

    async def adopt(ref, labels):
        heir.executor.sync()  # the loop goes on meanwhile
        held.append(len(heir.executor._registry))
        return await relabel(ref, labels)

    monkeypatch.setattr(heir.runtime.launcher, "adopt", adopt)
    heir.adopt(*tis)
    held.append(len(heir.executor._registry))
    assert held == [0, 1, 2, 3]
    assert {pod.labels["airflow-worker"] for pod in pods} == {str(heir.executor.job_id)}


def test_a_scheduler_that_dies_before_it_has_relabelled_them(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    successor().offer(ti)
    third = successor()

    assert third.adopt(ti) == []
    third.observe(pod, m.start_error())
    assert third.row(ti).state == "scheduled"


def test_the_same_for_the_official_executors_pod_in_which_the_task_runs(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    harness.begin(ti, pod)
    successor().offer(ti)

    third = successor()
    assert third.adopt(ti) == []
    assert pod.labels["airflow-worker"] == str(third.executor.job_id)


def test_a_queued_task_whose_pod_goes_before_it_is_relabelled(harness, queued_ti, successor, cluster):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()
    heir.offer(ti)
    cluster.remove(pod)
    heir.runtime.carry_out("Adopter")
    heir.executor.sync()
    heir.send(PodConfirmed(*heir.runtime.take("confirm")[0], None))
    heir.executor.sync()

    assert (heir.row(ti).state, len(heir.ledger(ti)), heir.occupied(ti)) == ("scheduled", 1, False)


def test_a_running_task_whose_pod_goes_before_it_is_relabelled(harness, queued_ti, successor, cluster):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.begin(ti, pod)
    heir = successor()
    assert heir.offer(ti) == []
    cluster.remove(pod)
    heir.runtime.carry_out("Adopter")
    heir.executor.sync()
    heir.send(PodConfirmed(*heir.runtime.take("confirm")[0], None))

    ((state, info),) = heir.events().values()
    assert (state, heir.ledger(ti), heir.occupied(ti)) == ("failed", [], False)
    assert "Deleted" in info


def test_a_pod_of_the_official_executor_is_adopted(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    heir = successor()

    heir.adopt(ti)
    assert heir.occupied(ti)
    heir.observe(pod, m.start_error())
    assert heir.row(ti).state == "scheduled"
    assert len(heir.ledger(ti)) == 1


def test_the_pod_of_an_earlier_life_of_the_task_instance_is_not_adopted(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    pod.annotations["airflow-resilience/task-instance-id"] = "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"
    heir = successor()

    heir.adopt(ti)
    heir.executor.sync()
    assert heir.row(ti).state == "scheduled"
    assert pod.labels["airflow-worker"] == own_label(harness)


def test_a_running_task_whose_pod_a_living_scheduler_has_labelled_is_adopted(
    harness, queued_ti, successor, session
):
    """That scheduler was killed before it had committed, and its heartbeat is fresh."""
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.begin(ti, pod)
    heir = successor()
    pod.labels["airflow-worker"] = str(make_scheduler_job(session))
    assert heir.adopt(ti) == []
    assert pod.labels["airflow-worker"] == own_label(heir)
    assert heir.occupied(ti)


def test_the_same_for_the_official_executors_pod_of_a_queued_task(harness, queued_ti, successor, session):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    heir = successor()
    pod.labels["airflow-worker"] = str(make_scheduler_job(session))
    heir.adopt(ti)
    heir.send()
    assert pod.labels["airflow-worker"] == own_label(heir)
    assert heir.row(ti).state == "queued"
    assert heir.occupied(ti)


def test_a_pod_whose_workload_is_of_an_earlier_life_is_not_adopted(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    index = pod.base["args"].index("--json-string") + 1
    pod.base["args"][index] = json.dumps({"ti": {"id": "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"}})
    heir = successor()

    heir.adopt(ti)
    heir.executor.sync()
    assert heir.row(ti).state == "scheduled"
    assert pod.labels["airflow-worker"] == own_label(harness)


def restart(harness, ti) -> None:
    """Clear a task instance while it runs, as the API server does."""
    ti = harness.row(ti)
    ti.prepare_db_for_next_try(harness.session)
    harness.set_state(ti, "restarting")


def test_a_task_that_was_cleared_while_it_ran_waits_for_its_worker(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.begin(ti, pod)
    restart(harness, ti)
    heir = successor()

    assert heir.adopt(ti) == []
    assert heir.occupied(ti)
    heir.observe(pod, m.alive())
    assert heir.events() == {}
    heir.observe(pod, m.succeeded())
    assert [state for state, _ in heir.events().values()] == ["success"]
    assert not heir.occupied(ti)


def test_a_task_that_was_cleared_while_it_ran_and_has_no_pod_is_reset(harness, queued_ti, successor, cluster):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.begin(ti, pod)
    restart(harness, ti)
    cluster.remove(pod)
    assert successor().adopt(ti) == [ti]


def test_a_pod_of_another_try_is_not_waited_for(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.begin(ti, pod)
    restart(harness, ti)
    pod.annotations["airflow-resilience/task-instance-id"] = "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"
    assert successor().adopt(ti) == [ti]


@pytest.mark.parametrize("kind", ["official", "ours"])
def test_nobody_knows_in_which_of_its_pods_a_task_runs(harness, queued_ti, successor, cluster, kind):
    """As after a switch from the official executor, which has left two pods, with host names of no pod."""
    ti = queued_ti()
    runs = harness.launch(ti).created("2026-01-01T00:00:00Z")
    harness.executor.revoke_task(ti=ti)
    harness.accepted(runs.ref)
    harness.clock.advance(60)
    failed = harness.launch(ti)
    if kind == "official":
        runs.strip()
        failed.strip()
    harness.set_state(ti, "running", hostname="some-host")
    runs.become(m.alive())
    failed.become(m.worker_error())  # it has lost the start
    heir = successor()

    assert heir.adopt(ti) == []
    heir.observe(failed)
    heir.quiet()
    assert (heir.runtime.take("delete"), heir.events()) == ([], {})
    heir.observe(runs, m.worker_error())
    assert (heir.runtime.take("delete"), heir.events()) == ([], {})


@pytest.mark.parametrize("order", ["runs in the older", "runs in the newer"])
def test_the_address_says_in_which_of_its_pods_a_task_runs(harness, queued_ti, successor, order):
    ti = queued_ti()
    older = harness.launch(ti).created("2026-01-01T00:00:00Z")
    harness.executor.revoke_task(ti=ti)
    harness.accepted(older.ref)
    harness.clock.advance(60)
    newer = harness.launch(ti)
    older.become(m.alive()).manifest["status"]["podIP"] = "10.0.0.1"
    newer.become(m.alive()).manifest["status"]["podIP"] = "10.0.0.2"
    runs, other = (older, newer) if order == "runs in the older" else (newer, older)
    harness.set_state(ti, "running", hostname=runs.manifest["status"]["podIP"])
    heir = successor()

    heir.adopt(ti)
    assert heir.runtime.take("delete") == [(other.ref,)]
    assert runs.labels["airflow-worker"] == own_label(heir)
    heir.observe(runs)
    evicted = m.evicted()
    del evicted["status"]["podIP"]
    heir.observe(runs, evicted)
    assert [state for state, _ in heir.events().values()] == ["failed"]


def test_what_a_scheduler_had_in_mind_before_another_one_took_over_is_forgotten(
    harness, queued_ti, start, session, cluster
):
    """It was taken for dead while a relaunch waited; the other one launched it, and died."""
    ti = queued_ti()
    first = harness.launch(ti)
    harness.observe(first, m.image_pull_error())  # the relaunch waits until that pod is gone, and 30 s
    cluster.remove(first)
    other = make_scheduler_job(session)
    harness.set_state(ti, "queued", queued_by_job_id=other)
    takes_over = start(other)
    takes_over.queue(ti)
    takes_over.executor.heartbeat()
    takes_over.wait(31)
    second = takes_over.created()
    session.execute(update(Job).where(Job.id == other).values(state="failed"))
    session.commit()

    assert harness.adopt(harness.row(ti)) == []
    harness.runtime.take("delete")
    harness.deleted(first.ref)
    harness.wait(600)
    assert harness.runtime.take("create") == []
    harness.observe(second, m.alive())
    assert harness.occupied(ti)


def test_the_adoption_that_was_rolled_back_decides_nothing(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()
    heir.executor.try_adopt_task_instances([ti])
    heir.session.rollback()
    heir.runtime.carry_out("Adopter")

    heir.observe(pod, m.start_error())
    heir.wait(1)
    assert (heir.ledger(ti), heir.events(), heir.occupied(ti)) == ([], {}, True)
    assert heir.offer(ti) == []  # Airflow repeats it, and this time it succeeds
    heir.wait(1)
    assert (heir.row(ti).state, len(heir.ledger(ti))) == ("scheduled", 1)


def test_a_task_of_its_own_is_left_as_it_is(harness, queued_ti):
    ti = queued_ti()
    harness.launch(ti)
    assert harness.adopt(ti) == []
    assert harness.runtime.calls == 0
    assert harness.occupied(ti)


def test_adoption_by_another_scheduler_gives_the_slot_back_silently(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()
    heir.adopt(ti)

    harness.lose_sight(pod)
    harness.send(*(PodConfirmed(ref, pod.facts()) for (ref,) in harness.runtime.take("confirm")))
    assert (harness.occupied(ti), harness.events()) == (False, {})
    assert [call for call in harness.runtime.commands if call[0].__name__ != "_list"] == []
    assert heir.occupied(ti)
