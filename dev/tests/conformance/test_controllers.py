# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler does, on a server that runs with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cluster_lab.apiserver.patches import MERGE
from cluster_lab.conformance import Api, Manifest, condition

READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "m",
    "lastHeartbeatTime": "2030-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}


def _ready_node(api: Api, group: str, **spec: Any) -> str:
    status = {"conditions": [READY], "allocatable": CAPACITY, "capacity": CAPACITY}
    name = api.create_node(spec=spec, status=status)
    headers = {"Content-Type": MERGE}
    labels = {"group": group}
    api.http.patch(
        f"/api/v1/nodes/{name}", json={"metadata": {"labels": labels}}, headers=headers
    ).raise_for_status()
    return name


def _create(api: Api, name: str, **spec: Any) -> None:
    api.create(name, schedulerName="default-scheduler", nodeSelector={"group": api.namespace}, **spec)


def _node_affinity(**affinity: Any) -> Manifest:
    return {"affinity": {"nodeAffinity": affinity}}


def _only_on(node: str) -> Manifest:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return _node_affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [term]})


def _wait_until_used(api: Api, *nodes: str) -> None:
    """A scheduler learns of a node, and that it is not tainted as new any more, at a time of its own."""
    for node in nodes:
        _create(api, f"probe-of-{node}", **_only_on(node))
        assert _node_of(api, f"probe-of-{node}") == node


def _wait(api: Api, name: str, reached: Any) -> Manifest:
    with api.watch(resourceVersion="0", fieldSelector=f"metadata.name={name}") as events:
        return next(obj for kind, obj in events if reached(kind, obj))


def _node_of(api: Api, name: str) -> str:
    bound = _wait(api, name, lambda _, obj: obj["spec"].get("nodeName"))
    return str(bound["spec"]["nodeName"])


def _is_unschedulable(_: str, pod: Manifest) -> bool:
    scheduled = condition(pod, "PodScheduled")
    return scheduled is not None and (scheduled["status"], scheduled.get("reason")) == (
        "False",
        "Unschedulable",
    )


def test_pods_are_spread(api: Api) -> None:
    nodes = {_ready_node(api, api.namespace), _ready_node(api, api.namespace)}
    _wait_until_used(api, *nodes)
    for name in "abcdef":
        _create(api, name)

    placed = Counter(_node_of(api, name) for name in "abcdef")

    assert placed.keys() == nodes


def test_a_pod_that_fits_nowhere_says_so(api: Api) -> None:
    _ready_node(api, "of-another-test")
    _create(api, "a")

    pod = _wait(api, "a", _is_unschedulable)

    assert "nodes are available" in (condition(pod, "PodScheduled") or {})["message"]
    assert pod["status"]["phase"] == "Pending"


def test_a_waiting_pod_is_bound_once_a_node_fits(api: Api) -> None:
    _create(api, "a")
    _wait(api, "a", _is_unschedulable)

    node = _ready_node(api, api.namespace)

    assert _node_of(api, "a") == node


def test_a_required_affinity_excludes_a_node(api: Api) -> None:
    bad, good = _ready_node(api, api.namespace), _ready_node(api, api.namespace)
    term = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [bad]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    for name in "abc":
        _create(api, name, **_node_affinity(**affinity))

    assert {_node_of(api, name) for name in "abc"} == {good}


def test_a_preferred_affinity_is_followed_if_it_can_be(api: Api) -> None:
    bad, good = _ready_node(api, api.namespace), _ready_node(api, api.namespace)
    _wait_until_used(api, bad, good)
    term = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [bad]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
    _create(api, "a", **_node_affinity(**preferred))
    assert _node_of(api, "a") == good


def test_a_preferred_affinity_that_cannot_be_followed_excludes_nothing(api: Api) -> None:
    node = _ready_node(api, api.namespace)
    term = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
    _create(api, "a", **_node_affinity(**preferred))

    assert _node_of(api, "a") == node


def test_a_cordoned_node_gets_nothing(api: Api) -> None:
    _ready_node(api, api.namespace, unschedulable=True)
    _create(api, "a")

    _wait(api, "a", _is_unschedulable)
