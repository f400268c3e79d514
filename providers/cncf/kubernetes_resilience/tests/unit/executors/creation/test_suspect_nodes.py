# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Launches fail on one node and start on others: all launches prefer the others."""

from __future__ import annotations

from itertools import count

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.counters import SUSPECT_NODES
from airflow.providers.cncf.kubernetes_resilience.executors.creation.suspect_nodes import MOST_NAMES
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE

from ....support import manifests as m

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def on(node: str, manifest):
    manifest["spec"]["nodeName"] = node
    return manifest


@pytest.fixture
def launch(harness, queued_ti):
    return launcher(harness, queued_ti)


def launcher(harness, queued_ti):
    fresh = map("task_{}".format, count())

    def launch(manifest, node="node-1"):
        """Launch a task instance, and have its pod become that; return the task instance."""
        ti = queued_ti(next(fresh))
        harness.set_state(ti, "queued", queued_by_job_id=harness.executor.job_id)
        harness.observe(harness.launch(ti), on(node, manifest))
        harness.runtime.take("create")
        return ti

    return launch


def spoil(launch) -> None:
    """Have two launches fail on the first node, while another starts on the second."""
    launch(m.alive(), "node-2")
    for _ in range(2):
        launch(m.status_unknown())


def avoided(harness, ti) -> list[str]:
    """Return the nodes to which a new launch prefers others."""
    harness.set_state(ti, "queued", queued_by_job_id=harness.executor.job_id)
    affinity = harness.launch(ti).manifest["spec"].get("affinity")
    if affinity is None:
        return []
    (preferred,) = affinity["nodeAffinity"][PREFERRED]
    return [name for item in preferred["preference"]["matchFields"] for name in item["values"]]


def test_a_node_on_which_launches_fail_is_suspect(harness, launch, queued_ti, caplog):
    launch(m.alive(), "node-2")
    first, second = launch(m.status_unknown()), launch(m.not_admitted())
    assert avoided(harness, queued_ti("new")) == ["node-1"]
    assert [harness.ledger(ti)[0]["node_is_suspect"] for ti in (first, second)] == [False, True]
    assert "Node node-1 is suspect: launches of 2 task instances have failed on it" in caplog.text


def test_a_relaunch_goes_to_a_suspect_node_rather_than_to_its_own_again(harness, launch, queued_ti):
    spoil(launch)
    ti = queued_ti("new")
    harness.observe(harness.launch(ti), on("node-3", m.evicted()))
    preferred = harness.created().manifest["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert [(item["weight"], item["preference"]["matchFields"][0]["values"]) for item in preferred] == [
        (100, ["node-3"]),
        (99, ["node-1"]),
    ]


def test_its_own_node_is_avoided_once_if_it_is_suspect_too(harness, launch, queued_ti):
    """Else the two preferences together outweigh those of the pod, for on-demand nodes for example."""
    spoil(launch)
    harness.observe(harness.launch(queued_ti("new")), on("node-1", m.evicted()))
    (preferred,) = harness.created().manifest["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert preferred["preference"]["matchFields"][0]["values"] == ["node-1"]


def test_a_launch_that_starts_and_is_lost_speaks_against_its_node(harness, launch, queued_ti):
    launch(m.alive(), "node-2")
    launch(m.status_unknown())
    pod = harness.launch(queued_ti("started"))
    harness.observe(pod, on("node-1", m.alive()))
    harness.observe(pod, on("node-1", m.status_unknown()))
    harness.runtime.take("create")
    assert avoided(harness, queued_ti("new")) == ["node-1"]


def test_while_nothing_starts_elsewhere_no_node_is_to_blame(harness, launch, queued_ti):
    launch(m.alive())
    for _ in range(3):
        launch(m.status_unknown())
    assert avoided(harness, queued_ti("new")) == []
    launch(m.alive(), "node-2")
    assert avoided(harness, queued_ti("newer")) == ["node-1"]


def test_one_task_instance_is_no_evidence(harness, launch, queued_ti):
    launch(m.alive(), "node-2")
    ti = queued_ti("once_more")
    harness.observe(harness.launch(ti), on("node-1", m.status_unknown()))
    harness.observe(harness.created(), on("node-1", m.status_unknown()))
    assert len(harness.ledger(ti)) == 2
    assert avoided(harness, queued_ti("new")) == []


def test_the_tries_of_one_task_instance_are_no_evidence(harness, launch, queued_ti):
    launch(m.alive(), "node-2")
    ti = queued_ti("tries")
    for number in (1, 2):
        harness.set_state(ti, "queued", try_number=number)
        harness.observe(harness.launch(ti), on("node-1", m.status_unknown()))
        harness.runtime.take("create")
    assert avoided(harness, queued_ti("new")) == []


@pytest.mark.parametrize("manifest", [m.evicted, m.image_pull_error, m.node_lost])
def test_what_does_not_lie_with_the_node_is_no_evidence(harness, launch, queued_ti, manifest):
    launch(m.alive(), "node-2")
    for _ in range(2):
        launch(manifest())
    assert avoided(harness, queued_ti("new")) == []


def test_failures_long_apart_are_no_evidence(harness, launch, queued_ti):
    launch(m.status_unknown())
    harness.wait(601)
    launch(m.alive(), "node-2")
    launch(m.status_unknown())
    assert avoided(harness, queued_ti("new")) == []


def test_a_start_on_it_ends_the_suspicion(harness, launch, queued_ti, caplog):
    spoil(launch)
    launch(m.alive())
    assert avoided(harness, queued_ti("new")) == []
    assert "Node node-1 is not suspect any more: a launch has started on it" in caplog.messages


def test_so_does_the_time_that_is_configured(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__NODE_SUSPECT_TIMEOUT="60")
    launch = launcher(harness, queued_ti)
    spoil(launch)
    harness.wait(59)
    assert avoided(harness, queued_ti("new")) == ["node-1"]
    harness.wait(2)
    assert avoided(harness, queued_ti("newer")) == []


def test_each_failure_on_a_suspect_node_begins_that_time_anew(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__NODE_SUSPECT_TIMEOUT="900")
    launch = launcher(harness, queued_ti)
    spoil(launch)
    harness.wait(700)
    launch(m.not_admitted())
    harness.wait(300)
    assert avoided(harness, queued_ti("new")) == ["node-1"]
    harness.wait(601)
    assert avoided(harness, queued_ti("newer")) == []


def test_it_can_be_switched_off(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__NODE_SUSPECT_TIMEOUT="0")
    launch = launcher(harness, queued_ti)
    spoil(launch)
    assert avoided(harness, queued_ti("new")) == []


def test_the_latest_nodes_are_named_if_there_are_many(harness, launch, queued_ti):
    launch(m.alive(), "good")
    for number in range(MOST_NAMES + 1):
        for _ in range(2):
            launch(m.status_unknown(), f"node-{number}")
    assert avoided(harness, queued_ti("new")) == [f"node-{number}" for number in range(1, MOST_NAMES + 1)]


def test_the_successor_of_a_dead_scheduler_knows_it(harness, launch, queued_ti, successor, monkeypatch):
    gauge = []
    monkeypatch.setattr(type(SUSPECT_NODES), "set", lambda self, value, **tags: gauge.append((self, value)))
    spoil(launch)
    other = successor()
    other.executor.sync()
    assert avoided(other, queued_ti("new")) == ["node-1"]
    assert [value for metric, value in gauge if metric is SUSPECT_NODES] == [0, 1, 1]


def test_each_cause_that_lies_with_the_node():
    assert {cause.name for cause in TABLE if cause.node_bound} == {
        "container-creating",
        "container-not-changed",
        "container-cannot-run",
        "container-status-unknown",
        "create-container-error",
        "image-inspection-failed",
        "image-store-failed",
        "refused-by-admission-error",
        "refused-by-kubelet",
        "refused-by-node-affinity",
        "refused-by-node-shutdown",
        "refused-by-topology-manager",
        "refused-by-virtual-kubelet",
        "refused-out-of-resources",
        "root-file-system-failed",
        "run-container-error",
        "runtime-failed",
        "sandbox-not-created",
        "start-error",
        "start-not-prepared",
        "volume-unavailable",
    }
