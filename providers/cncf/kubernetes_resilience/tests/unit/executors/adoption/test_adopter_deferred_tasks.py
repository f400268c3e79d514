# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A task instance whose earlier phase left a pod behind, taken over from a scheduler that died."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.jobs.job import Job
from kubernetes.client.models import V1ObjectMeta, V1Pod
from sqlalchemy import update

from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m


@pytest.fixture
def handed_over(start, queued_ti, session):
    """
    Give an executor, a task instance and both of its pods.

    Its pod of phase one lingers in the executor's hands; another scheduler has launched phase two and died.
    """
    ours, ti = start(), queued_ti()
    first = ours.run(ti)
    other = make_scheduler_job(session)
    ours.set_state(ti, "queued", queued_by_job_id=other)
    second = start(other).launch(ti)
    session.execute(update(Job).where(Job.id == other).values(state="failed"))
    session.commit()
    assert ours.adopt(ours.row(ti)) == []
    return ours, ti, first, second


def test_the_next_phase_is_adopted_although_the_earlier_one_has_the_slot(handed_over):
    ours, _, _, second = handed_over
    assert second.labels["airflow-worker"] == ours.label


def test_the_end_of_the_earlier_phase_is_no_launch_failure(handed_over):
    ours, ti, first, _ = handed_over
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
