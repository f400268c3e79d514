# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Reports that Airflow skips, since somebody else has the task instance's row locked."""

from __future__ import annotations

import pytest
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.failures.reports import REPORT_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import DatabaseAwayError
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances

from ....support import manifests as m
from ....support.harness import lock
from .test_unreported_decisions import deliver


@pytest.fixture
def harness(start):
    return start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="0")


def fail(harness, ti, state):
    """Have a task instance reported as failed."""
    pod = harness.launch(ti)
    if state == "queued":
        harness.observe(pod, m.start_error())
    else:
        harness.observe(pod, m.alive())
        harness.begin(ti, pod)
        if state == "restarting":
            harness.begin_anew(ti, state)
        harness.observe(pod, m.out_of_memory())
    assert harness.row(ti).state == state


def skip(harness, ti):
    """Let Airflow take the reports while somebody has the row locked."""
    with lock(ti):
        deliver(harness)


@pytest.mark.parametrize(
    ("state", "end"), [("queued", "failed"), ("running", "failed"), ("restarting", "up_for_retry")]
)
def test_a_failure_is_reported_again(harness, ti, state, end):
    fail(harness, ti, state)
    skip(harness, ti)
    assert harness.row(ti).state == state
    harness.wait(1)
    deliver(harness)
    assert harness.row(ti).state == end
    harness.wait(1)
    assert harness.events() == {}


def test_it_is_the_same_report(harness, ti):
    fail(harness, ti, "running")
    with lock(ti):
        first = harness.events()
    harness.wait(1)
    assert harness.events() == first


def test_a_worker_that_has_stopped_as_it_was_told_is_reported_again(harness, ti):
    pod = harness.run(ti)
    harness.begin_anew(ti, "restarting")
    harness.observe(pod, m.succeeded())
    skip(harness, ti)
    assert harness.row(ti).state == "restarting"
    harness.wait(1)
    with create_session() as session:  # the thread's one, which Airflow changes this state with
        deliver(harness, session)
    assert harness.row(ti).state is None


def test_it_is_repeated_for_as_long_as_airflows_own_limits_take(harness, ti):
    fail(harness, ti, "queued")
    skip(harness, ti)
    for _ in range(10):
        harness.wait(1)
        skip(harness, ti)
    harness.wait(REPORT_TIMEOUT)
    assert harness.events() == {}


def test_a_task_that_was_cleared_meanwhile_is_reported_again(harness, ti):
    """It is the clearing that has the row locked."""
    fail(harness, ti, "running")
    skip(harness, ti)
    harness.begin_anew(ti, "restarting")
    harness.wait(1)
    deliver(harness)
    assert harness.row(ti).state == "up_for_retry"


def test_a_guess_of_the_scheduler_is_not(harness, ti):
    """It may be the heartbeat of the worker that has the row locked."""
    harness.set_state(ti, "running", queued_by_job_id=harness.executor.job_id)
    harness.executor.change_state(ti.key, "failed")
    skip(harness, ti)
    harness.wait(1)
    assert harness.events() == {}


@pytest.mark.parametrize("state", ["running", "restarting", "scheduled", "success", "deferred", None])
def test_it_is_not_if_the_row_says_something_else_by_then(harness, ti, state):
    fail(harness, ti, "queued")
    skip(harness, ti)
    harness.set_state(ti, state)
    harness.wait(1)
    assert harness.events() == {}


def test_it_is_not_if_the_task_instance_is_queued_again(harness, ti):
    fail(harness, ti, "queued")
    skip(harness, ti)
    harness.queue(ti)
    harness.wait(1)
    assert harness.events() == {}


def test_it_is_not_if_another_scheduler_has_the_task_instance(harness, ti, successor):
    fail(harness, ti, "queued")
    skip(harness, ti)
    harness.set_state(ti, "queued", queued_by_job_id=successor().executor.job_id)
    harness.wait(1)
    assert harness.events() == {}


def test_reports_are_handed_over_while_the_database_does_not_answer(harness, ti, monkeypatch):
    fail(harness, ti, "queued")

    def away(*args, **kwargs):
        raise DatabaseAwayError

    monkeypatch.setattr(task_instances, "read_by_key", away)
    assert [state for state, _ in harness.events().values()] == ["failed"]
