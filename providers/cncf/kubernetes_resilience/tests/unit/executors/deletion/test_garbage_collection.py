# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Finished pods that dead schedulers have left behind."""

from __future__ import annotations

import asyncio

import pytest
from airflow.configuration import conf

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import ConnectionFailedError
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m


@pytest.fixture
def leftover(harness, ti):
    """Give a pod that succeeded without its scheduler having noticed."""
    return harness.launch(ti).become(m.succeeded())


def look(heir) -> None:
    """Let the collector list pods and have its orders carried out."""
    heir.executor.sync()
    heir.runtime.carry_out("OrphanCollector")
    heir.executor.sync()
    heir.quiet()


def collect(heir) -> None:
    look(heir)
    for ref, *_ in [*heir.runtime.take("clean_up"), *heir.runtime.take("delete")]:
        del heir.cluster.pods[ref.uid]
    for (ref,) in heir.runtime.take("mark_done"):
        heir.cluster.pods[ref.uid].labels["airflow_executor_done"] = "True"


@pytest.fixture
def over(harness, ti, leftover):
    harness.set_state(ti, "success")


@pytest.mark.usefixtures("over")
def test_a_succeeded_pod_of_a_dead_scheduler_is_deleted(leftover, successor, cluster):
    collect(successor())
    assert cluster.pods == {}


@pytest.mark.usefixtures("over")
def test_or_kept_out_of_sight(leftover, successor):
    collect(successor(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS="False"))
    assert leftover.labels["airflow_executor_done"] == "True"


@pytest.mark.parametrize("owner", ["heir", "dead"])
@pytest.mark.parametrize("state", ["deferred", "up_for_reschedule", "scheduled", "awaiting_input"])
@pytest.mark.parametrize("like", [m.succeeded(), m.lingering(m.COMPLETED)], ids=["alone", "beside a sidecar"])
def test_a_succeeded_pod_of_an_earlier_phase_is_deleted(
    leftover, harness, ti, successor, cluster, state, like, owner
):
    """Airflow offers no scheduler a task instance that waits: its row names the dead one, maybe for days."""
    leftover.become(like)
    heir = successor()
    harness.set_state(ti, state, queued_by_job_id=(heir if owner == "heir" else harness).executor.job_id)
    collect(heir)
    assert cluster.pods == {}


@pytest.mark.parametrize("state", ["queued", "running", "restarting"])
@pytest.mark.parametrize(
    "like",
    [m.alive(), m.start_error(), m.succeeded(), m.lingering(), m.lingering(m.COMPLETED)],
    ids=["alive", "failed", "succeeded", "failed beside a sidecar", "done beside a sidecar"],
)
def test_what_may_have_to_be_adopted_is_left(leftover, harness, ti, successor, cluster, state, like):
    """The end of a pod may be what its task has to be failed, or run again, for."""
    harness.set_state(ti, state, hostname=leftover.name)
    leftover.become(like)
    collect(successor())
    assert list(cluster.pods.values()) == [leftover]
    assert "airflow_executor_done" not in leftover.labels


@pytest.mark.parametrize("kind", ["official", "ours"])
@pytest.mark.parametrize(
    "like", [m.starting(), m.start_error(), m.succeeded(), m.lingering(), m.lingering(m.COMPLETED)]
)
def test_a_task_that_was_cleared_while_it_ran_waits_for_its_worker(
    leftover, harness, ti, successor, cluster, like, kind
):
    """Airflow has given it another UUID. Without its pod it would be reset, which costs a retry."""
    if kind == "official":
        leftover.strip()
    harness.begin(ti, leftover)
    harness.begin_anew(ti, "restarting")
    leftover.become(like)
    collect(successor(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE="True"))
    assert list(cluster.pods.values()) == [leftover]


OVER = ["success", "failed", "up_for_retry", "skipped", "removed", None]


@pytest.mark.parametrize("state", OVER)
def test_a_failed_pod_is_kept_out_of_sight_when_its_try_is_over(leftover, harness, ti, successor, state):
    harness.set_state(ti, state)
    leftover.become(m.start_error())
    collect(successor())
    assert leftover.labels["airflow_executor_done"] == "True"


LINGERING = {"done": m.lingering(m.COMPLETED), "failed": m.lingering()}


@pytest.mark.parametrize("like", LINGERING)
@pytest.mark.parametrize("state", OVER)
def test_a_pod_whose_worker_has_ended_beside_a_sidecar_is_ended(
    leftover, harness, ti, successor, state, like
):
    harness.set_state(ti, state)
    leftover.become(LINGERING[like])
    heir = successor(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE="True")
    look(heir)
    assert heir.runtime.take("clean_up") == [(leftover.ref,)]


@pytest.mark.parametrize("like", LINGERING)
def test_or_stopped_and_kept(leftover, harness, ti, successor, like):
    harness.set_state(ti, "success")
    leftover.become(LINGERING[like])
    heir = successor(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS="False")
    look(heir)
    assert heir.runtime.take("stop_and_keep") == [(leftover.ref,)]


@pytest.mark.parametrize("like", [m.alive(), m.beside_a_sidecar_without_image(m.running())])
def test_a_pod_whose_worker_runs_ends_by_itself(leftover, harness, ti, successor, cluster, like):
    harness.set_state(ti, "success")
    leftover.become(like)
    collect(successor())
    assert list(cluster.pods.values()) == [leftover]


@pytest.mark.parametrize("ti_id", ["", "nonsense", "5f6c1f4e-0d3b-4b53-9c55-1f6f0f6b7a21"])
@pytest.mark.parametrize("like", [m.start_error(), m.succeeded()], ids=["failed", "succeeded"])
def test_what_is_not_known_may_be_of_another_deployment(leftover, harness, ti, successor, like, ti_id):
    harness.set_state(ti, "success")
    leftover.become(like)
    leftover.manifest["metadata"]["annotations"]["airflow-resilience/task-instance-id"] = ti_id
    collect(successor())
    assert list(harness.cluster.pods.values()) == [leftover]
    assert "airflow_executor_done" not in leftover.labels


def test_pods_of_living_schedulers_are_left(leftover, successor, cluster, session):
    heir = successor()
    leftover.labels["airflow-worker"] = str(make_scheduler_job(session))
    collect(heir)
    assert list(cluster.pods.values()) == [leftover]


def test_pods_of_its_own_are_left(leftover, harness, cluster):
    collect(harness)
    assert list(cluster.pods.values()) == [leftover]


def test_it_is_repeated(harness):
    harness.executor.sync()
    assert len(harness.runtime.take("_list")) == 1
    harness.executor.sync()
    assert harness.runtime.take("_list") == []
    harness.wait(conf.getfloat("scheduler", "orphaned_tasks_check_interval"))
    assert len(harness.runtime.take("_list")) == 1


@pytest.mark.usefixtures("over")
def test_an_outage_is_waited_out_quietly(leftover, successor, cluster):
    heir = successor()
    cluster.outage = ConnectionFailedError("no route")
    heir.executor.sync()
    for function, args in heir.runtime.commands:
        asyncio.run(function(*args))  # what it raised would be logged as an error
    heir.runtime.commands.clear()
    cluster.outage = None
    heir.clock.advance(conf.getfloat("scheduler", "orphaned_tasks_check_interval"))
    collect(heir)
    assert cluster.pods == {}


@pytest.mark.parametrize("like", [m.start_error(), m.starting()], ids=["failed", "never started"])
@pytest.mark.parametrize("kind", ["official", "ours"])
def test_a_pod_of_a_try_that_was_cleared_or_tried_again(leftover, harness, ti, successor, like, kind):
    """The task instance has another UUID since."""
    if kind == "official":
        leftover.strip()
    harness.begin_anew(ti, "queued", try_number=2)
    leftover.become(like)
    collect(successor(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE="True"))
    assert list(harness.cluster.pods.values()) == []


def test_a_pod_that_has_started_since_it_was_listed_ends_by_itself(leftover, harness, ti, successor):
    """The one who looks may have stood still since."""
    leftover.become(m.starting()).manifest["metadata"]["resourceVersion"] = "7"
    harness.set_state(ti, "success")
    heir = successor()
    heir.executor.sync()
    heir.runtime.carry_out("OrphanCollector")
    heir.executor.sync()
    assert heir.runtime.take("delete") == [(leftover.ref, "7", harness.label)]
