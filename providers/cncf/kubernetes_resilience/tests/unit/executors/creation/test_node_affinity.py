# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which nodes a pod may go to, and what of its own affinity has to stay."""

from __future__ import annotations

import pytest
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

from airflow.providers.cncf.kubernetes_resilience.executors.creation.mutations import go_elsewhere
from airflow_resilience.decision import AvoidNode

from ....support.entries import lost

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NOT_1 = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}
NOT_2 = {"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}
GPU = {"key": "gpu", "operator": "Exists"}
FIELD = {"key": "metadata.name", "operator": "In", "values": ["node-1", "node-3"]}
ZONE = {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
APART = {"podAntiAffinity": {PREFERRED: []}}
NEAR = {
    "podAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}]}
}


def changed(affinity=None, *, suspects=(), last=None):
    spec = {"containers": [{"name": "base"}], **({"affinity": affinity} if affinity else {})}
    pod = PodGenerator.deserialize_model_dict({"spec": spec})
    go_elsewhere(pod, last, suspects)
    return PodGenerator.serialize_pod(pod)["spec"].get("affinity")


def preference(weight, *requirements):
    return {"weight": weight, "preference": {"matchFields": [*requirements]}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"nodeAffinity": {PREFERRED: [preference(100, NOT_1, NOT_2)]}}),
        (
            {"nodeAffinity": {PREFERRED: [ZONE]}, **APART},
            {"nodeAffinity": {PREFERRED: [ZONE, preference(6, NOT_1, NOT_2)]}, **APART},
        ),
        (
            {"nodeAffinity": {PREFERRED: [{**ZONE, "weight": 1}]}},
            {"nodeAffinity": {PREFERRED: [{**ZONE, "weight": 1}, preference(1, NOT_1, NOT_2)]}},
        ),
        (NEAR, {"nodeAffinity": {PREFERRED: [preference(100, NOT_1, NOT_2)]}, **NEAR}),
    ],
    ids=[
        "alone",
        "beside a preference",
        "beside the least that there is",
        "beside a pod affinity, which is scored apart",
    ],
)
def test_other_nodes_are_preferred_less_than_what_the_pod_prefers(before, after):
    assert changed(before, suspects=["node-1", "node-2"]) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [{"matchFields": [NOT_1]}]),
        ([], [{"matchFields": [NOT_1]}]),
        (
            [{"matchExpressions": [GPU]}, {"matchFields": [FIELD]}, {}],
            [{"matchExpressions": [GPU], "matchFields": [NOT_1]}, {"matchFields": [FIELD, NOT_1]}, {}],
        ),
    ],
    ids=["no requirement", "no terms", "into each alternative"],
)
def test_other_nodes_are_required_beside_what_the_pod_requires(before, after):
    affinity = None if before is None else {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": before}}}
    last = lost(node="node-1", avoid_node=AvoidNode.REQUIRE)
    assert changed(affinity, last=last) == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": after}}}


def test_without_names_nothing_is_preferred():
    assert changed() is None
