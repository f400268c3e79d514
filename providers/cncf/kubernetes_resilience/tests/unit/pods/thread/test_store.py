# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which changes of a pod are worth an observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow.providers.cncf.kubernetes_resilience.pods.thread.informer import PodStore

Pod = Callable[..., dict[str, Any]]


RUNS = {"phase": "Running"}


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "base", "state": state}]}


def condition(type_: str, status: str, **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": status, **more}]}


def readiness(status: str, *, containers: str) -> dict[str, Any]:
    conditions = [("Ready", status), ("ContainersReady", containers)]
    return {"conditions": [{"type": type_, "status": status} for type_, status in conditions]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"phase": "Running"}),
        ({}, {"phase": "BrandNew"}),
        ({}, {"reason": "NodeLost"}),
        ({}, condition("DisruptionTarget", "True", reason="EvictionByEvictionAPI")),
        (condition("DisruptionTarget", "True"), condition("DisruptionTarget", "False")),
        ({}, condition("PodScheduled", "False", reason="Unschedulable")),
        ({}, condition("example.com/gpu", "False")),
        # The node controller takes the readiness from the pods of a node that it has not heard of.
        (RUNS | readiness("True", containers="True"), RUNS | readiness("False", containers="True")),
        (RUNS | readiness("False", containers="True"), RUNS | readiness("True", containers="True")),
        (RUNS, RUNS | condition("Ready", "False")),
        (container(waiting={"reason": "ContainerCreating"}), container(waiting={"reason": "ErrImagePull"})),
        (container(waiting={}), container(running={"startedAt": "2026-01-01T00:00:00Z"})),
        (container(terminated={"exitCode": 0}), container(terminated={"exitCode": 1})),
        (container(terminated={"exitCode": 1}), container(terminated={"exitCode": 1, "reason": "OOMKilled"})),
    ],
)
def test_status_that_matters(pod: Pod, before: dict[str, Any], after: dict[str, Any]) -> None:
    store = PodStore()
    assert store.update(read_pod(pod(**before))) is not None
    seen = store.update(read_pod(pod(**after)))
    assert seen.facts == read_pod(pod(**after))
    assert not seen.gone


@pytest.mark.parametrize(
    "status",
    [
        {"message": "another"},
        {"podIP": "10.0.0.1"},
        condition("Ready", "False"),
        readiness("False", containers="False"),
        readiness("True", containers="True"),
        condition("ContainersReady", "True"),
        condition("Initialized", "True"),
        condition("PodReadyToStartContainers", "True"),
    ],
)
def test_status_that_does_not(pod: Pod, status: dict[str, Any]) -> None:
    store = PodStore()
    store.update(read_pod(pod()))
    assert store.update(read_pod(pod(**status))) is None


@pytest.mark.parametrize(
    ("path", "value", "matters"),
    [
        ("deletionTimestamp", "2026-01-01T00:00:00Z", True),
        ("labels", {"airflow-worker": "2"}, True),
        ("labels", {"airflow_executor_done": "True"}, True),
        ("labels", {"colour": "blue"}, False),
        ("annotations", {"note": "x"}, False),
        ("resourceVersion", "99", False),
    ],
)
def test_metadata(pod: Pod, path: str, value: Any, matters: bool) -> None:
    store = PodStore()
    store.update(read_pod(pod()))
    changed = pod()
    changed["metadata"][path] = value
    assert (store.update(read_pod(changed)) is not None) is matters


def test_binding_to_a_node_matters(pod: Pod) -> None:
    store = PodStore()
    store.update(read_pod(pod()))
    assert store.update(read_pod({**pod(), "spec": {"nodeName": "n1"}})) is not None


def test_gone_reading_is_the_last_one_known(pod: Pod) -> None:
    store = PodStore()
    store.update(read_pod(pod(phase="Running")))
    store.update(read_pod(pod(phase="Running", message="newer")))  # not worth an observation, but newer
    (gone,) = store.replace([])
    assert gone.gone
    assert gone.facts.message == "newer"
    assert store.replace([]) == []
