# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Launches that have not started when a user clears, marks or deletes their task instance."""

from __future__ import annotations

import pytest
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

from airflow.providers.cncf.kubernetes_resilience.executors import reconciler
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import UNKNOWN_VERSION
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, Waiting
from airflow.providers.cncf.kubernetes_resilience.executors.reconciler import CHECK_INTERVAL
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodNotDeleted

from ...support import manifests as m


@pytest.fixture
def pending(harness, queued_ti):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.starting())
    return ti, pod


def mark(harness, ti, session):
    harness.set_state(ti, "success")


def clear(harness, ti, session):
    harness.begin_anew(ti, None)


def reset(harness, ti, session):
    harness.set_state(ti, None)


def delete(harness, ti, session):
    session.delete(ti)
    session.commit()


@pytest.mark.parametrize("act", [mark, clear, reset, delete])
def test_a_pod_that_is_not_wanted_any_more_is_deleted(harness, pending, session, act):
    ti, pod = pending
    key = ti.key
    act(harness, ti, session)
    harness.wait(CHECK_INTERVAL)
    assert harness.runtime.take("delete") == [(pod.ref,)]
    assert key not in harness.executor.running
    assert harness.events() == {}


def test_each_step_is_logged_with_situation_and_standing(harness, pending, session, caplog):
    """Pod and row lead to the step, and not a message: the log at DEBUG says why."""
    ti, _ = pending
    mark(harness, ti, session)
    with caplog.at_level("DEBUG", reconciler.__name__):
        harness.wait(CHECK_INTERVAL)
    assert f"{ti.key}: UNCHECKED, OVER: <Step.CANCEL: 2>" in caplog.messages


@pytest.fixture
def unseen(start, queued_ti):
    """Give an executor that keeps pods, a task instance that is over, and its pod, which nobody has seen."""
    harness, ti = start(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS="False"), queued_ti()
    pod = harness.launch(ti)
    harness.set_state(ti, "success")
    harness.wait(CHECK_INTERVAL)
    return harness, ti, pod


def test_also_if_it_was_never_seen(unseen):
    harness, ti, pod = unseen
    assert harness.runtime.take("delete") == [(pod.ref, UNKNOWN_VERSION)]
    assert not harness.occupied(ti)


@pytest.mark.parametrize("like", [m.succeeded(), m.worker_error()], ids=["succeeded", "failed"])
def test_a_pod_that_was_never_seen_and_has_ended_is_kept(unseen, like):
    """Its task was quicker than its informer, or its namespace is not watched."""
    harness, _, pod = unseen
    harness.send(PodNotDeleted(pod.become(like).facts()))
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(pod.ref,)]


def test_the_next_try_waits_for_it(harness, pending, session):
    ti, pod = pending
    clear(harness, ti, session)
    harness.wait(CHECK_INTERVAL)
    harness.requeue(ti)
    assert harness.runtime.take("create") == []
    harness.deleted(pod.ref)
    assert harness.created().launch_number == 1


@pytest.mark.parametrize("like", [m.alive(), m.beside_a_sidecar_without_image(m.running())])
def test_a_pod_whose_worker_runs_is_left(harness, pending, session, like):
    ti, pod = pending
    harness.observe(pod, like)
    mark(harness, ti, session)
    harness.wait(CHECK_INTERVAL)
    assert harness.runtime.take("delete") == []


def test_nothing_is_asked_of_the_database_when_nothing_is_pending(harness, monkeypatch):
    monkeypatch.setattr(task_instances, "read_rows", None)
    harness.wait(CHECK_INTERVAL)


@pytest.fixture
def many(start, queued_ti, monkeypatch):
    """Give an executor whose task instances are all marked, and that looks at two of them in a turn."""
    monkeypatch.setattr(reconciler, "CHECK_LIMIT", 2)
    harness = start()
    tis = queued_ti(mapped=5)
    pods = [harness.launch(ti) for ti in tis]
    for ti in tis:
        harness.set_state(ti, "success")
    return harness, pods


def test_many_are_looked_at_over_several_turns(many):
    harness, pods = many
    harness.clock.advance(CHECK_INTERVAL)
    deleted = []
    for _ in range(4):
        harness.executor.sync()
        deleted.append([ref for ref, _ in harness.runtime.take("delete")])
    assert [len(refs) for refs in deleted] == [2, 2, 1, 0]
    assert {ref for refs in deleted for ref in refs} == {pod.ref for pod in pods}


def test_what_has_started_meanwhile_is_left_to_its_end(many):
    harness, pods = many
    harness.wait(CHECK_INTERVAL)
    first = {ref for ref, _ in harness.runtime.take("delete")}
    rest = [pod for pod in pods if pod.ref not in first]
    harness.observe(rest[0], m.succeeded())
    for _ in range(3):
        harness.executor.sync()
    assert {ref for ref, _ in harness.runtime.take("delete")} == {pod.ref for pod in rest[1:]}


def test_waiting_relaunches_are_looked_at_over_several_turns(many, queued_ti):
    harness, _ = many
    tis = queued_ti("another", mapped=5)
    for ti in tis:
        harness.executor.running.add(ti.key)
    registry = harness.registry
    for ti in tis:
        waiting = Waiting(KubernetesJob(ti.key, [], None, None, None), not_before=1e9, is_relaunch=True)
        registry.make_current(Launch(ti.key, str(ti.id), waiting=waiting))
    for ti in tis:
        harness.set_state(ti, "failed")
    harness.clock.advance(CHECK_INTERVAL)
    for _ in range(6):
        harness.executor.sync()
    assert not any(registry.get(ti.key) or harness.occupied(ti) for ti in tis)


def test_a_pod_that_has_started_and_nobody_has_said_so_is_left(harness, pending):
    """This scheduler has stood still, and the worker has reported. It may still call callbacks."""
    ti, pod = pending
    pod.manifest["metadata"]["resourceVersion"] = "7"
    harness.observe(pod, m.starting())
    harness.begin(ti, pod)
    harness.set_state(ti, "success")
    harness.wait(CHECK_INTERVAL)
    assert harness.runtime.take("delete") == [(pod.ref, "7")]


def test_an_api_server_that_comes_and_goes_does_not_keep_what_is_not_wanted(harness, pending):
    ti, pod = pending
    harness.set_state(ti, "success")
    for is_away in (True, False) * 2:
        harness.runtime.is_away = is_away
        harness.wait(CHECK_INTERVAL / 2)
    assert harness.runtime.take("delete") == [(pod.ref,)]
