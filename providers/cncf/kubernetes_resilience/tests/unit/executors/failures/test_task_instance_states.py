# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a pod's end means when its task instance is not queued any more, or queued again."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import REPORT_GRACE

from ....support import manifests as m

REPORTED = ["success", "failed", "deferred", "up_for_retry", "up_for_reschedule", "scheduled", "skipped"]


@pytest.fixture
def running(harness, queued_ti):
    ti = queued_ti(retries=1)
    pod = harness.run(ti)
    return ti, pod


@pytest.mark.parametrize("hostname", ["", "10.244.1.7", "some-other-host", "{pod}", "{pod}.dag.svc"])
def test_a_task_that_can_run_in_no_other_pod_fails_with_it(harness, running, hostname):
    ti, pod = running
    harness.set_state(ti, "running", hostname=hostname.format(pod=pod.name))
    harness.observe(pod, m.worker_error())
    assert [state for state, _ in harness.events().values()] == ["failed"]


@pytest.mark.parametrize("hostname", ["some-other-host", "10.244.1.7"])
def test_a_relaunched_task_that_runs_nobody_knows_where_does_not_fail_with_a_pod(
    harness, queued_ti, hostname
):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.node_lost())
    second = harness.created()
    lost = m.worker_error()
    lost["status"]["podIP"] = "10.244.1.8"
    harness.set_state(ti, "running", hostname=hostname)
    harness.observe(second, lost)
    assert (harness.events(), harness.occupied(ti)) == ({}, False)


@pytest.mark.parametrize("state", REPORTED)
@pytest.mark.parametrize("like", [m.succeeded(), m.worker_error(), m.evicted()], ids=["0", "1", "evicted"])
def test_a_pod_that_ends_after_its_worker_has_reported(harness, running, state, like):
    ti, pod = running
    harness.set_state(ti, state)
    harness.observe(pod, like)
    assert [reported for reported, _ in harness.events().values()] == [state]
    assert not harness.occupied(ti)
    assert harness.ledger(ti) == []
    assert harness.row(ti).state == state


def test_a_worker_that_ends_well_without_saying_so_has_failed(harness, running):
    """As when the process of its task was killed alone. A report that is under way comes first."""
    ti, pod = running
    harness.observe(pod, m.succeeded())
    harness.wait(REPORT_GRACE - 0.1)
    assert (harness.occupied(ti), harness.events()) == (True, {})
    harness.wait(0.2)
    assert "EndedWithoutReport" in harness.failure()
    assert (harness.occupied(ti), harness.ledger(ti)) == (False, [])


def test_a_report_that_comes_just_after_the_end_of_the_pod_counts(harness, running):
    ti, pod = running
    harness.observe(pod, m.succeeded())
    harness.set_state(ti, "success")
    harness.executor.sync()
    assert [state for state, _ in harness.events().values()] == ["success"]


def test_a_task_instance_that_was_deleted(harness, queued_ti, session):
    ti = queued_ti()
    pod, key = harness.launch(ti), ti.key
    session.delete(ti)
    session.commit()
    harness.observe(pod, m.start_error())
    assert (harness.events(), harness.runtime.take("create")) == ({}, [])
    assert key not in harness.executor.running
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(pod.ref,)]


# -------------------------------------------------------------------------------------------- deferral


def defer(harness, ti):
    """Let a task defer and its trigger fire, so that the scheduler has queued it again."""
    harness.set_state(ti, "deferred")
    harness.set_state(ti, "queued", next_method="execute_complete")
    harness.queue(ti)


@pytest.mark.parametrize("like", [m.succeeded(), m.worker_error()], ids=["0", "1"])
def test_the_pod_that_deferred_ends_before_the_resume_is_launched(harness, running, like):
    ti, pod = running
    defer(harness, ti)
    harness.observe(pod, like)
    assert (harness.events(), harness.ledger(ti)) == ({}, [])
    harness.executor.heartbeat()
    resume = harness.created()
    assert resume.launch_number == 1
    assert harness.occupied(ti)


@pytest.mark.parametrize("like", [m.succeeded(), m.worker_error()], ids=["0", "1"])
def test_the_pod_that_deferred_ends_after_the_resume_was_launched(harness, running, like):
    ti, pod = running
    defer(harness, ti)
    harness.executor.heartbeat()
    resume = harness.created()
    harness.observe(pod, like)
    harness.vanish(pod)
    assert (harness.events(), harness.ledger(ti), harness.occupied(ti)) == ({}, [], True)
    harness.begin(ti, resume)
    harness.observe(resume, m.out_of_memory())
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_the_count_begins_anew_with_each_start(harness, queued_ti):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.start_error())
    second = harness.created()
    harness.begin(ti, second)
    defer(harness, ti)
    harness.executor.heartbeat()
    third = harness.created()
    assert third.launch_number == 1
    harness.observe(second, m.succeeded())
    harness.observe(third, m.start_error())
    assert harness.created().launch_number == 2
    assert harness.events() == {}
    assert [entry["action"] for entry in harness.ledger(ti)] == ["relaunch", "relaunch"]
