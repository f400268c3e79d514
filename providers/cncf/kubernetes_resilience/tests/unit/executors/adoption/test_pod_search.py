# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pods of orphans are found, and get this scheduler's label while its loop goes on."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed

from ....support import manifests as m


def test_nothing_is_done_to_a_pod_before_airflow_has_committed_its_adoption(launched, successor):
    ti, pod = launched
    heir = successor()

    assert heir.offer(ti) == []
    assert heir.occupied(ti)
    assert heir.runtime.commands == []
    heir.executor.sync()
    assert [ref for ref, _ in heir.runtime.take("adopt")] == [pod.ref]


def test_a_pod_that_fails_before_it_is_relabelled(launched, successor):
    ti, pod = launched
    heir = successor()
    heir.offer(ti)
    pod.become(m.start_error())
    heir.executor.sync()
    heir.relabel()
    heir.observe(pod)
    heir.executor.sync()

    assert heir.row(ti).state == "scheduled"
    assert len(heir.ledger(ti)) == 1


def test_the_same_for_the_official_executors_pod_in_which_the_task_runs(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    harness.begin(ti, pod)
    successor().offer(ti)

    third = successor()
    assert third.adopt(ti) == []
    assert pod.labels["airflow-worker"] == third.label


def test_a_queued_task_whose_pod_goes_before_it_is_relabelled(launched, successor, cluster):
    ti, pod = launched
    heir = successor()
    heir.offer(ti)
    cluster.remove(pod)
    heir.executor.sync()
    heir.send(PodConfirmed(heir.runtime.take("adopt")[0][0], None))
    heir.executor.sync()

    assert (heir.row(ti).state, len(heir.ledger(ti)), heir.occupied(ti)) == ("scheduled", 1, False)


def test_a_pod_that_goes_while_it_is_waited_for_is_asked_for_at_once(launched, successor, cluster):
    ti, pod = launched
    heir = successor()
    heir.offer(ti)
    cluster.remove(pod)
    heir.lose_sight(pod)
    heir.executor.sync()
    heir.executor.sync()
    assert heir.runtime.take("confirm") == [(pod.ref,)]
