# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which nodes a replacement may go to, and what of the pod's own affinity has to stay."""

from __future__ import annotations

import copy

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.creation.node_affinity import avoid
from airflow_resilience.decision import AvoidNode

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ELSEWHERE = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}
GPU = {"key": "gpu", "operator": "Exists"}
ZONE = {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
APART = {"podAntiAffinity": {PREFERRED: []}}


def pod(affinity=None):
    return {"spec": {"containers": [{"name": "base"}], **({"affinity": affinity} if affinity else {})}}


@pytest.mark.parametrize(
    ("how", "before", "after"),
    [
        (
            AvoidNode.PREFER,
            None,
            {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": {"matchFields": [ELSEWHERE]}}]}},
        ),
        (
            AvoidNode.PREFER,
            {"nodeAffinity": {PREFERRED: [ZONE]}, **APART},
            {
                "nodeAffinity": {
                    PREFERRED: [ZONE, {"weight": 6, "preference": {"matchFields": [ELSEWHERE]}}]
                },
                **APART,
            },
        ),
        (
            AvoidNode.REQUIRE,
            None,
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [ELSEWHERE]}]}}},
        ),
        (
            AvoidNode.REQUIRE,
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}, PREFERRED: [ZONE]}},
            {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [ELSEWHERE]}]},
                    PREFERRED: [ZONE],
                }
            },
        ),
        (
            AvoidNode.REQUIRE,
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [GPU]},
                            {"matchFields": [{"key": "f"}]},
                            {},
                        ]
                    }
                }
            },
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [GPU], "matchFields": [ELSEWHERE]},
                            {"matchFields": [{"key": "f"}, ELSEWHERE]},
                            {},
                        ]
                    }
                }
            },
        ),
    ],
    ids=["preference", "beside a preference", "requirement", "no terms", "into each alternative"],
)
def test_affinity_is_added_to_what_is_there(how, before, after):
    manifest = pod(before)
    untouched = copy.deepcopy(manifest)
    assert avoid(manifest, "node-1", how) == pod(after)
    assert manifest == untouched


@pytest.mark.parametrize(("node", "how"), [(None, AvoidNode.REQUIRE), ("node-1", AvoidNode.NONE)])
def test_nothing_to_avoid_changes_nothing(node, how):
    manifest = pod({"nodeAffinity": {PREFERRED: [ZONE]}})
    assert avoid(manifest, node, how) is manifest
