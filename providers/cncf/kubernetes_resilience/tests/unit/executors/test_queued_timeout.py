# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow gives up on tasks that are queued for too long; a relaunch that waits is not one of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import OperationalError

from airflow.providers.cncf.kubernetes_resilience.executors import pacing, task_instances
from airflow_resilience.backoff import Backoff
from cluster_lab.airflow_fixtures import make_scheduler_job

from .. import manifests as m
from .harness import lock

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = {
    "SCHEDULER__TASK_QUEUED_TIMEOUT": "90",
    "KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS": "RunContainerError",
}
INTERVAL = 30


def age(harness, ti, **values) -> None:
    """Let a task instance have been queued long ago."""
    harness.set_state(ti, values.pop("state", "queued"), queued_dttm=LONG_AGO, **values)


def is_fresh(harness, ti) -> bool:
    """Whether the task instance counts as queued just now."""
    return harness.row(ti).queued_dttm > LONG_AGO


@pytest.fixture
def waiting(start, queued_ti):
    """Give an executor, a task instance whose relaunch waits until its pod is gone, and the pod."""
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.not_startable())
    age(harness, ti)
    return harness, ti, pod


def test_while_a_relaunch_waits_for_the_old_pod(waiting):
    harness, ti, _ = waiting
    harness.wait(INTERVAL - 1)
    assert not is_fresh(harness, ti)
    harness.wait(1)
    assert is_fresh(harness, ti)
    age(harness, ti)
    harness.wait(INTERVAL - 1)
    assert not is_fresh(harness, ti)
    harness.wait(1)
    assert is_fresh(harness, ti)


def test_while_a_relaunch_waits_for_its_backoff(start, queued_ti, monkeypatch):
    monkeypatch.setattr(pacing, "IMMEDIATE_RELAUNCHES", 0)
    monkeypatch.setattr(pacing, "RELAUNCH_BACKOFF", Backoff(initial=1000.0, maximum=1000.0, jitter=0.0))
    harness = start(**CONFIG)
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.evicted())
    age(harness, ti)
    harness.wait(INTERVAL)
    assert harness.runtime.take("create") == []
    assert is_fresh(harness, ti)


def test_while_an_adopted_one_waits_to_be_handed_back(waiting, successor):
    _, ti, _ = waiting
    heir = successor(**CONFIG)
    heir.adopt(ti)
    heir.executor.sync()
    age(heir, ti)
    heir.wait(INTERVAL)
    assert heir.row(ti).state == "queued"
    assert is_fresh(heir, ti)


def test_when_the_replacement_is_asked_for(waiting):
    harness, ti, pod = waiting
    harness.deleted(pod.ref)
    harness.create_call()
    assert is_fresh(harness, ti)


def test_a_first_launch_has_the_time_that_airflow_gives_it(start, queued_ti):
    harness = start(**CONFIG)
    ti = queued_ti()
    age(harness, ti)
    harness.launch(ti)
    harness.wait(INTERVAL)
    assert not is_fresh(harness, ti)


def test_a_pod_that_was_asked_for_has_the_time_that_airflow_gives_it(waiting):
    harness, ti, pod = waiting
    harness.deleted(pod.ref)
    harness.created()
    age(harness, ti)
    harness.wait(INTERVAL)
    assert not is_fresh(harness, ti)


def test_a_task_that_is_not_queued_any_more_is_left_as_it_is(waiting):
    harness, ti, pod = waiting
    age(harness, ti, state="running")
    harness.wait(INTERVAL)
    harness.deleted(pod.ref)
    assert not is_fresh(harness, ti)


def test_a_task_that_another_scheduler_has_queued_is_left_as_it_is(waiting, session):
    harness, ti, pod = waiting
    age(harness, ti, queued_by_job_id=make_scheduler_job(session))
    harness.wait(INTERVAL)
    harness.deleted(pod.ref)
    assert not is_fresh(harness, ti)


def test_a_row_that_somebody_has_locked_is_not_waited_for(waiting):
    harness, ti, pod = waiting
    with lock(ti):
        harness.wait(INTERVAL)
        harness.deleted(pod.ref)
    assert harness.create_call()
    assert not is_fresh(harness, ti)


def test_a_database_that_does_not_answer_is_asked_again(waiting, monkeypatch):
    harness, ti, _ = waiting

    def broken(*args, **kwargs):
        raise OperationalError("SELECT 1", {}, Exception("the database is away"))

    with monkeypatch.context() as patch:
        patch.setattr(task_instances, "begin_queued_anew", broken)
        harness.wait(INTERVAL)
    assert not is_fresh(harness, ti)
    harness.executor.sync()
    assert is_fresh(harness, ti)


def test_many_at_once(start, queued_ti):
    harness = start(**CONFIG)
    tis = queued_ti(mapped=3)
    for ti in tis:
        harness.observe(harness.launch(ti), m.not_startable())
        age(harness, ti)
    harness.wait(INTERVAL)
    assert all(is_fresh(harness, ti) for ti in tis)
