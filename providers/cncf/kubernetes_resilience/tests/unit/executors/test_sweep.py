# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Finished pods that dead schedulers have left behind."""

from __future__ import annotations

import pytest
from airflow.configuration import conf

from cluster_lab.airflow_fixtures import make_scheduler_job

from .. import manifests as m


@pytest.fixture
def leftover(harness, queued_ti):
    """Give a pod that succeeded without its scheduler having noticed."""
    return harness.launch(queued_ti()).become(m.succeeded())


def sweep(heir) -> None:
    heir.executor.sync()
    heir.runtime.carry_out("Adopter")


def test_a_succeeded_pod_of_a_dead_scheduler_is_deleted(leftover, successor, cluster):
    sweep(successor())
    assert cluster.pods == {}


def test_or_kept_out_of_sight(leftover, successor):
    sweep(successor(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS="False"))
    assert leftover.labels["airflow_executor_done"] == "True"


@pytest.mark.parametrize("like", [m.alive(), m.start_error()], ids=["alive", "failed"])
def test_what_may_have_to_be_adopted_is_left(leftover, successor, cluster, like):
    leftover.become(like)
    sweep(successor())
    assert list(cluster.pods.values()) == [leftover]
    assert "airflow_executor_done" not in leftover.labels


def test_pods_of_living_schedulers_are_left(leftover, successor, cluster, session):
    heir = successor()
    leftover.labels["airflow-worker"] = str(make_scheduler_job(session))
    sweep(heir)
    assert list(cluster.pods.values()) == [leftover]


def test_pods_of_its_own_are_left(leftover, harness, cluster):
    sweep(harness)
    assert list(cluster.pods.values()) == [leftover]


def test_it_is_repeated(harness):
    harness.executor.sync()
    assert len(harness.runtime.take("_sweep")) == 1
    harness.executor.sync()
    assert harness.runtime.take("_sweep") == []
    harness.clock.advance(conf.getfloat("scheduler", "orphaned_tasks_check_interval"))
    harness.executor.sync()
    assert len(harness.runtime.take("_sweep")) == 1


def test_an_outage_is_waited_out(leftover, successor, cluster):
    heir = successor()
    cluster.outage = OSError("no route")
    sweep(heir)
    cluster.outage = None
    heir.clock.advance(conf.getfloat("scheduler", "orphaned_tasks_check_interval"))
    sweep(heir)
    assert cluster.pods == {}
