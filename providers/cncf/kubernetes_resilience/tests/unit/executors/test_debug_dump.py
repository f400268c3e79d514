# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the scheduler logs about the executor when it is sent SIGUSR2."""

from __future__ import annotations

import re

import pytest
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import (
    KubernetesExecutor as UpstreamKubernetesExecutor,
)

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import ConnectionFailedError
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodNotCreated

from ...support import manifests as m
from ...support.harness import database_away, lock, noted_log

HEADING = "Launches of the Kubernetes executor"


@pytest.fixture
def dump(caplog, monkeypatch):
    """Give a function that returns what is logged about each launch of an executor, by its map index."""

    monkeypatch.setattr(KubernetesExecutor, "log", noted_log(__name__))

    def read(harness):
        caplog.clear()
        with caplog.at_level("INFO"):
            harness.executor.debug_dump()
        (text,) = [text for text in caplog.messages if text.startswith(HEADING)]
        heading, *lines = text.split("\n\t")
        found = {}
        for line in filter(None, lines):
            index = int(line.partition("map_index=")[2].partition(")")[0])
            found.setdefault(index, []).append(line.partition("): ")[2])
        assert heading == f"{HEADING} ({sum(map(len, found.values()))})"
        return found

    return read


def test_nothing_is_held(harness, dump):
    assert dump(harness) == {}


def test_it_says_where_each_task_is(harness, queued_ti, dump):
    creating, pending, started, ended = tis = queued_ti(mapped=4)
    pods = {ti: harness.launch(ti) for ti in tis[1:]}
    launch_id, body = harness.call_for(creating)
    harness.send(PodNotCreated(launch_id, ConnectionFailedError("reset", retry_after=50.0)))
    harness.observe(pods[pending], m.starting())
    harness.observe(pods[started], m.alive())
    with lock(ended):
        harness.observe(pods[ended], m.evicted())
        lines = {ti: dump(harness)[ti.map_index] for ti in tis}
    names = {ti: f"launch 1, pod default/{pod.name}" for ti, pod in pods.items()}
    assert lines[creating] == [
        f"creating; launch 1, pod default/{body['metadata']['name']}, asked for in 50 s"
    ]
    assert lines[pending] == [f"pending; {names[pending]}, node node-1, phase Pending"]
    assert lines[started] == [f"started; {names[started]}, node node-1, phase Running"]
    (line,) = lines[ended]
    assert line.startswith(f"ended; {names[ended]}, node node-1, phase Failed, pod")
    assert "Evicted" in line


def test_it_says_what_a_relaunch_waits_for(harness, queued_ti, dump):
    ti = queued_ti(mapped=1)[0]
    pod = harness.launch(ti)
    harness.observe(pod, m.image_pull_error())
    first, second = dump(harness)[0]
    assert re.fullmatch(r"waiting; launched in \d+ s, once the pods before it are gone", first)
    assert second == (
        f"departing; launch 1, pod default/{pod.name}, node node-1, phase Pending, "
        "deletion asked for; waited for at most 300 s"
    )


def test_it_says_what_is_adopted(harness, successor, queued_ti, dump, cluster):
    ti = queued_ti(mapped=1)[0]
    dead = harness.executor.job_id
    harness.launch(ti)
    heir = successor()
    cluster.outage = TimeoutError()
    heir.offer(ti)
    assert dump(heir)[0] == [f"adopting from scheduler job {dead}"]


def test_it_says_what_was_handed_over_and_not_taken_yet(harness, queued_ti, dump):
    ti = queued_ti(mapped=1)[0]
    harness.queue(ti)
    harness.executor.trigger_tasks(open_slots=1)
    assert dump(harness)[0] == ["waiting; launched in 0 s, once the pods before it are gone"]


def test_it_says_what_was_refused_and_not_reported_yet(harness, queued_ti, dump, monkeypatch):
    monkeypatch.setattr(UpstreamKubernetesExecutor, "execute_async", lambda self, **workload: 1 / 0)
    ti = queued_ti(mapped=1)[0]
    harness.queue(ti)
    harness.executor.trigger_tasks(open_slots=1)
    why = "Workload could not be accepted: ZeroDivisionError: division by zero"
    assert dump(harness)[0] == [f"waiting; fails once no pod of it can start any more: {why}"]


def test_it_says_what_has_lost_its_pod_and_cannot_be_settled(
    harness, successor, queued_ti, dump, monkeypatch
):
    ti = queued_ti(mapped=1)[0]
    harness.begin(ti, harness.launch(ti))
    heir = successor()
    heir.cluster.pods.clear()

    adopter = heir.parts.adopter
    monkeypatch.setattr(adopter, "_with_budget", set)
    assert heir.offer(ti) == []
    with database_away(adopter, "_with_budget"):
        heir.executor.sync()
    assert dump(heir)[0] == [f"adopting from scheduler job {harness.executor.job_id}"]


def test_one_that_cannot_be_described_leaves_out_nothing_else(harness, queued_ti, dump, monkeypatch):
    """The scheduler dumps in a signal handler: an exception would end it."""
    describe = Launch.describe

    def fail(self, now):
        if self.key.map_index == 0:
            raise RuntimeError("a bug")
        return describe(self, now)

    monkeypatch.setattr(Launch, "describe", fail)
    for ti in queued_ti(mapped=2):
        harness.launch(ti)
    lines = dump(harness)
    assert lines[0] == ["pending; cannot be described: RuntimeError: a bug"]
    assert lines[1][0].startswith("pending; launch 1, pod")


def test_an_executor_that_was_not_started_holds_nothing(caplog, monkeypatch):
    monkeypatch.setattr(KubernetesExecutor, "log", noted_log(__name__))
    with caplog.at_level("INFO"):
        KubernetesExecutor().debug_dump()
    assert f"{HEADING} (0)\n\t" in caplog.messages
