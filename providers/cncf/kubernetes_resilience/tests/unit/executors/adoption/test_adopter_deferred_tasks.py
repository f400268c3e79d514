# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A task instance whose earlier phase left a pod behind, taken over from a scheduler that died."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.jobs.job import Job
from kubernetes.client.models import V1ObjectMeta, V1Pod
from sqlalchemy import update

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import CLOCK_SKEW
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m


@pytest.fixture
def handed_over(start, queued_ti, session):
    """
    Give a function that plays the history and returns the executor, the task instance and both pods.

    Its pod of phase one lingers in the executor's hands; another scheduler has launched phase two and died.
    """

    def make(**config):
        ours = start(**config)
        ti = queued_ti()
        first = ours.run(ti)
        other = make_scheduler_job(session)
        ours.set_state(ti, "queued", queued_by_job_id=other)
        second = start(other).launch(ti)
        session.execute(update(Job).where(Job.id == other).values(state="failed"))
        session.commit()
        assert ours.adopt(ours.row(ti)) == []
        return ours, ti, first, second

    return make


@pytest.fixture
def deferred(harness, queued_ti):
    """Give a task instance that is queued again without a pod, and the pod in which it has deferred."""
    ti = queued_ti()
    pod = harness.run(ti)
    harness.set_state(ti, "queued")
    return ti, pod


def test_the_next_phase_is_adopted_although_the_earlier_one_has_the_slot(handed_over):
    ours, _, _, second = handed_over()
    assert second.labels["airflow-worker"] == str(ours.executor.job_id)


def test_the_end_of_the_earlier_phase_is_no_launch_failure(handed_over):
    ours, ti, first, _ = handed_over()
    ours.observe(first, m.succeeded())
    assert (ours.ledger(ti), ours.runtime.take("create")) == ([], [])


def test_the_pod_of_this_phase_may_have_the_name_of_the_earlier_one(harness, queued_ti, session, successor):
    """As an override has it that gives all pods of a task the same name."""
    ti = queued_ti()
    ti.executor_config = {"pod_override": V1Pod(metadata=V1ObjectMeta(name="always-the-same"))}
    session.commit()
    first = harness.run(ti)
    harness.vanish(first)
    harness.set_state(ti, "queued", scheduled_dttm=datetime.now(UTC) - timedelta(minutes=1))
    second = harness.launch(ti).created(datetime.now(UTC).isoformat())
    assert second.name == first.name
    heir = successor()
    heir.adopt(ti)
    heir.wait(1)
    assert heir.row(ti).state == "queued"


@pytest.mark.parametrize(
    "like",
    [m.succeeded(), m.lingering(m.COMPLETED), m.beside_a_sidecar_without_image(m.COMPLETED)],
    ids=["alone", "beside a sidecar", "beside a sidecar without image"],
)
def test_one_whose_worker_has_succeeded_is_none_whatever_its_host_is_called(
    harness, deferred, successor, like
):
    """``[core] hostname_callable`` may name hosts by their addresses."""
    ti, pod = deferred
    harness.set_state(ti, "queued", hostname="10.244.1.7")
    pod.become(like)
    heir = successor(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="0")
    heir.adopt(ti)
    for _ in range(2):
        heir.wait(SIDECAR_GRACE)
    assert (heir.events(), heir.ledger(ti)) == ({}, [])
    assert heir.row(ti).state == "scheduled"


def test_a_failed_launch_of_an_earlier_phase_is_not_taken_for_a_launch(harness, launched, successor):
    ti, first = launched
    harness.observe(first, m.start_error())
    second = harness.created()
    harness.begin(ti, second)
    harness.set_state(ti, "queued", scheduled_dttm=datetime.now(UTC) + 2 * CLOCK_SKEW)
    other = successor()
    assert other.adopt(harness.row(ti)) == []
    other.wait(1)
    assert harness.row(ti).state == "scheduled"
    assert len(harness.ledger(ti)) == 1
