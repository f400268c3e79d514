# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pods of orphans are found, and get this scheduler's label while its loop goes on."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.executors.adoption import pod_search
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed

from ....support import manifests as m


def test_the_scheduler_does_not_wait_until_the_pods_are_relabelled(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()

    assert heir.offer(ti) == []
    assert heir.occupied(ti)
    assert pod.labels["airflow-worker"] != str(heir.executor.job_id)
    heir.runtime.carry_out("PodSearch")
    assert pod.labels["airflow-worker"] == str(heir.executor.job_id)


def test_a_pod_that_fails_before_it_is_relabelled(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()
    heir.offer(ti)
    pod.become(m.start_error())
    heir.runtime.carry_out("PodSearch")
    heir.observe(pod)
    heir.executor.sync()

    assert heir.row(ti).state == "scheduled"
    assert len(heir.ledger(ti)) == 1


def test_many_are_held_as_they_are_relabelled(harness, queued_ti, successor, monkeypatch):
    tis = queued_ti(mapped=3)
    pods = [harness.launch(ti) for ti in tis]
    heir = successor()
    monkeypatch.setattr(pod_search, "RELABEL_BATCH", 1)
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
    heir.runtime.carry_out("PodSearch")
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
    heir.runtime.carry_out("PodSearch")
    heir.executor.sync()
    heir.send(PodConfirmed(*heir.runtime.take("confirm")[0], None))

    ((state, info),) = heir.events().values()
    assert (state, heir.ledger(ti), heir.occupied(ti)) == ("failed", [], False)
    assert "Deleted" in info


def test_a_pod_that_goes_while_it_is_waited_for_is_asked_for_at_once(harness, queued_ti, successor, cluster):
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor()
    heir.offer(ti)
    heir.runtime.carry_out("PodSearch")
    cluster.remove(pod)
    heir.lose_sight(pod)
    heir.executor.sync()
    assert heir.runtime.take("confirm") == [(pod.ref,)]
