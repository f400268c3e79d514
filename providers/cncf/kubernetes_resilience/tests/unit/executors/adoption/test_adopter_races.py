# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Adoption while something else happens: to the task, its pod, its row, or the scheduler before."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import plan_adoption
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Deletion
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m
from ....support.cluster import Pod
from ..tasks.test_queued_timeout import CONFIG, INTERVAL, TIMEOUT, age, expired, is_fresh  # noqa: F401
from .test_adopter_outage import try_again


@pytest.mark.parametrize("state", ["success", "failed", "up_for_retry", "deferred"])
def test_a_launch_whose_adoption_was_rolled_back_and_whose_task_has_ended_gives_its_slot_back(
    harness, launched, successor, state
):
    """Airflow offers only queued, running and restarting ones again; the row stays the dead scheduler's."""
    ti, pod = launched
    harness.begin(ti, pod)
    heir = successor()
    heir.executor.try_adopt_task_instances([ti])
    heir.session.rollback()
    heir.executor.sync()
    heir.set_state(ti, state)
    heir.observe(pod, m.succeeded())
    heir.wait(3600)
    heir.quiet()
    assert not heir.occupied(ti)
    assert heir.runtime.take("clean_up") == [(pod.ref,)]


def test_a_queued_task_whose_pod_cannot_be_labelled_is_not_held_off_for_ever(
    start, queued_ti, successor, cluster
):
    """A webhook refuses each change of it: Airflow's own limit has to end that, or we have to."""
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor(**CONFIG)
    cluster.refused[pod.ref.uid] = KubernetesApiError("denied the request", status=422)
    heir.adopt(ti)
    pod.become(m.start_error())
    for _ in range(24 * 60):
        try_again(heir)
    age(heir, ti)
    heir.wait(INTERVAL)
    heir.wait(INTERVAL)
    assert heir.row(ti).state == "scheduled" or not is_fresh(heir, ti)


def orphan_of(harness, ti) -> None:
    """Let a scheduler that has died have launched that pod."""
    dead = make_scheduler_job(harness.session)
    harness.set_state(ti, "queued", queued_by_job_id=dead)


def test_what_waits_for_a_slot_is_forgotten_with_adoption(harness, queued_ti):
    """A scheduler was taken for dead, had it back, and holds the workload of before still."""
    ti = queued_ti()
    harness.launch(ti)  # by another scheduler, which has died
    harness.registry.release(ti.key)
    harness.executor.running.clear()
    harness.queue(ti)
    orphan_of(harness, ti)
    harness.adopt(ti)
    assert harness.occupied(ti)
    harness.executor.heartbeat()
    assert harness.runtime.take("create") == []


def test_what_waits_to_be_handed_back_is_forgotten_with_the_next_adoption(launched, successor, cluster):
    """Another scheduler had it meanwhile, and has launched a pod."""
    ti, pod = launched
    heir = successor()
    heir.adopt(ti)
    adopted = heir.registry.get(ti.key)
    heir.parts.launch_queue.relaunch(adopted, None)
    heir.registry.supersede(adopted, Deletion(heir.clock.now + 100))
    cluster.remove(pod)
    second = cluster.add(Pod(pod.manifest))
    orphan_of(heir, ti)
    heir.adopt(ti)
    heir.wait(101)
    assert heir.row(ti).state == "queued", "its pod may start at any moment"
    assert heir.registry.current(second.ref.uid)


def test_a_pod_with_the_address_of_the_phase_before_is_a_launch_all_the_same(harness, queued_ti):
    """The hostname of a queued task is that of its last phase; addresses are used again."""
    ti = queued_ti()
    pod = harness.launch(ti).become(m.alive())
    orphan = Orphan(ti.key, str(ti.id), "queued", "10.244.1.7", 1)
    assert plan_adoption({ti.key: orphan}, [pod.facts()]).current
