# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A turn of the scheduler's loop takes a bounded time, however much has arrived."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors import kubernetes_executor, reconciler
from airflow.providers.cncf.kubernetes_resilience.executors.creation import create_retries
from airflow.providers.cncf.kubernetes_resilience.executors.deletion import pod_deletion
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodCreated,
    PodNotCreated,
    PodObservation,
)
from airflow_resilience.backoff import Backoff

from ...support import manifests as m
from ...support.cluster import Pod

TASKS = 7


@pytest.fixture
def ended(start, queued_ti):
    """Give an executor to which the end of many tasks has arrived, and whose work takes time."""
    harness = start()
    tis = queued_ti(mapped=TASKS)
    harness.hand_over(*tis)
    pods = [(launch_id, harness.cluster.add(Pod(body))) for launch_id, body in harness.runtime.take("create")]
    harness.send(*(PodCreated(launch_id, pod.facts()) for launch_id, pod in pods))
    for ti in tis:
        harness.set_state(ti, "success")
    for _, pod in pods:
        harness.inbox.put(PodObservation(pod.facts(phase="Succeeded")))
    return harness


def turns_until_all_is_reported(harness):
    reported = {}
    for turns in range(1, 2 * TASKS):
        harness.executor.sync()
        events = harness.executor.get_event_buffer()
        assert events, "the scheduler would sleep now"
        reported |= {key: event for key, event in events.items() if event[0] == "success"}
        if len(reported) == TASKS:
            return turns
    raise AssertionError(f"only {len(reported)} of {TASKS} were reported")


def passing(harness, monkeypatch, seconds):
    """Let each look at the clock take some time."""

    def clock():
        harness.clock.advance(seconds)
        return harness.clock.now

    monkeypatch.setattr(harness.executor, "_clock", clock)
    monkeypatch.setattr(harness.parts.reconciler, "_clock", clock)


def test_what_can_be_done_in_time_is_done_in_one_turn(ended):
    assert turns_until_all_is_reported(ended) == 1


def test_messages_that_take_long_wait_for_the_next_turn(ended, monkeypatch):
    passing(ended, monkeypatch, kubernetes_executor.RECEIVE_BUDGET / 2)
    assert 1 < turns_until_all_is_reported(ended) < TASKS


def test_launches_that_take_long_to_settle_wait_for_the_next_turn(ended, monkeypatch):
    monkeypatch.setattr(reconciler, "BATCH", 2)
    monkeypatch.setattr(kubernetes_executor, "RECEIVE_BUDGET", 1e6)
    passing(ended, monkeypatch, kubernetes_executor.SETTLE_BUDGET)
    assert turns_until_all_is_reported(ended) > 1


def test_create_calls_that_fail_keep_nothing_else_waiting(start, queued_ti, monkeypatch):
    monkeypatch.setattr(reconciler, "BATCH", 1)
    monkeypatch.setattr(create_retries, "PUBLISH_BACKOFF", Backoff(initial=0.0, maximum=0.0))
    harness = start()
    tis = queued_ti(mapped=TASKS)
    failing, over, cleared = tis[:-2], tis[-2], tis[-1]
    ended, pending = harness.launch(over), harness.launch(cleared)
    harness.observe(pending, m.starting())
    harness.hand_over(*failing)
    monkeypatch.setattr(kubernetes_executor, "RECEIVE_BUDGET", 1e6)
    passing(harness, monkeypatch, kubernetes_executor.SETTLE_BUDGET)  # each turn has time for one launch
    harness.clock.advance(reconciler.CHECK_INTERVAL)
    for ti in (over, cleared):
        harness.set_state(ti, "success")
    harness.inbox.put(PodObservation(ended.become(m.succeeded()).facts()))
    for _ in range(2 * TASKS):
        for launch_id, _ in harness.runtime.take("create"):
            harness.inbox.put(PodNotCreated(launch_id, KubernetesApiError("busy", status=503)))
        harness.executor.sync()
    assert [harness.occupied(ti) for ti in (over, cleared)] == [False, False]
    assert all(harness.occupied(ti) for ti in failing)


def test_a_turn_that_can_do_nothing_in_time_still_does_something(ended, monkeypatch):
    passing(ended, monkeypatch, 2 * kubernetes_executor.RECEIVE_BUDGET)
    assert turns_until_all_is_reported(ended) == TASKS


def test_the_scheduler_does_not_sleep_while_pods_are_to_be_built(start, queued_ti, monkeypatch):
    harness = start()
    monkeypatch.setattr(reconciler, "LAUNCH_BATCH", 3)
    tis = queued_ti(mapped=TASKS)
    harness.hand_over(*tis)
    created, awake = [len(harness.runtime.take("create"))], [len(harness.executor.get_event_buffer())]
    while created[-1]:
        harness.executor.sync()
        created.append(len(harness.runtime.take("create")))
        awake.append(len(harness.executor.get_event_buffer()))
    assert created == [3, 3, 1, 0]
    assert awake == [TASKS, 1, 0, 0], "each task is reported once, and one again for as long as more is to do"


def test_the_scheduler_does_not_sleep_while_messages_wait(ended, monkeypatch):
    inbox = ended.inbox
    ends = [inbox.get() for _ in range(TASKS)]
    for _ in range(TASKS):
        inbox.put(PodObservation(Pod({"metadata": {"name": "another", "namespace": "airflow"}}).facts()))
    for message in ends:
        inbox.put(message)
    ended.executor.get_event_buffer()
    # Each turn looks at one message, and none of the first ones is the end of a task's pod.
    passing(ended, monkeypatch, 2 * kubernetes_executor.RECEIVE_BUDGET)
    for _ in range(TASKS):
        ended.executor.sync()
        assert list(ended.executor.get_event_buffer().values()) == [("scheduled", None)]


def test_reports_are_not_lost_to_keep_the_scheduler_awake(ended):
    reports = dict(ended.executor.event_buffer)
    assert len(reports) == TASKS
    ended.executor._slots.stay_awake()
    assert ended.executor.event_buffer == reports
    dropped, _ = reports.popitem()
    del ended.executor.event_buffer[dropped]
    ended.executor._slots.stay_awake()
    assert ended.executor.event_buffer == {**reports, dropped: ("scheduled", None)}


def test_another_try_of_a_task_that_is_reported_does_not_keep_the_scheduler_awake(harness, queued_ti):
    ti = queued_ti()
    harness.hand_over(ti)
    reports = dict(harness.executor.event_buffer)
    assert list(reports) == [ti.key]
    harness.executor.running.add(ti.key.with_try_number(7))
    harness.executor._slots.stay_awake()
    assert harness.executor.event_buffer == reports


# ------------------------------------------------------------------------------------- pods that have ended


def pass_without_quiet(harness, seconds):
    """Let time pass in which a message about another pod arrives with each turn."""
    stray = Pod({"metadata": {"name": "another", "namespace": "airflow"}})
    step = 0.8 * pod_deletion.QUIET_SECONDS
    for _ in range(int(seconds / step)):
        harness.clock.advance(step)
        harness.send(PodObservation(stray.facts()))


def test_pods_that_have_ended_can_wait(ended):
    ended.send()
    pass_without_quiet(ended, pod_deletion.CLEAN_UP_TIMEOUT - pod_deletion.QUIET_SECONDS)
    assert ended.runtime.take("clean_up") == []
    ended.quiet()
    assert len(ended.runtime.take("clean_up")) == TASKS


def test_pods_that_have_ended_do_not_wait_for_ever(ended):
    ended.send()
    pass_without_quiet(ended, 2 * pod_deletion.CLEAN_UP_TIMEOUT)
    assert len(ended.runtime.take("clean_up")) == TASKS


def test_not_too_many_pods_are_tidied_up_in_one_turn(ended, monkeypatch):
    monkeypatch.setattr(pod_deletion, "CLEAN_UP_BATCH", 3)
    ended.send()
    cleaned = []
    for _ in range(4):
        ended.quiet()
        cleaned.append(len(ended.runtime.take("clean_up")))
    assert cleaned == [3, 3, 1, 0]


def test_pods_whose_end_was_read_are_tidied_up_in_the_end(ended, queued_ti):
    ended.send()
    ended.wait(0.1)
    last = ended.launch(ti := queued_ti(dag_id="another"))
    ended.set_state(ti, "success")
    ended.observe(last, m.succeeded())
    ended.executor.end()
    cleaned = [ref for function, (ref, *_) in ended.runtime.commands if function.__name__ == "clean_up"]
    assert len(cleaned) == TASKS
    assert last.ref not in cleaned, "nobody has read of it, and it has to be seen by the next scheduler"
