# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Rules for pods: defaults on creation and which changes are allowed.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from cluster_lab.apiserver.resources import Manifest
from cluster_lab.apiserver.status import Cause, forbidden, required

TERMINAL = ("Succeeded", "Failed")

_SPEC_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
}


def new_pod(pod: Manifest) -> Manifest:
    """:returns: the pod with the defaults that matter here; the status that came with it is dropped."""
    return pod | {"spec": _SPEC_DEFAULTS | pod.get("spec", {}), "status": {"phase": "Pending"}}


def check_new_pod(pod: Manifest) -> list[Cause]:
    """:returns: what makes a new pod invalid, as far as it is checked here."""
    containers = pod["spec"].get("containers")
    if not containers:
        return [required("spec.containers")]
    return [
        required(f"spec.containers[{index}].{field}")
        for index, container in enumerate(containers)
        for field in ("name", "image")
        if not container.get(field)
    ]


def check_spec_change(new: Manifest, old: Manifest) -> list[Cause]:
    """:returns: a complaint about a spec of which more is changed than its deadline."""
    deadline = {"activeDeadlineSeconds": new.get("spec", {}).get("activeDeadlineSeconds")}
    if new.get("spec", {}) | deadline == old["spec"] | deadline:
        return []
    return [forbidden("spec", "pod updates may not change fields other than spec.activeDeadlineSeconds")]


def with_condition(status: Manifest, condition: Manifest) -> Manifest:
    """:returns: a status with one condition set; unchanged (the same object) if it says so already."""
    conditions = status.get("conditions", [])
    current = next((c for c in conditions if c["type"] == condition["type"]), None)
    if current and all(current.get(k) == v for k, v in condition.items() if k != "lastTransitionTime"):
        return status
    if current and current["status"] == condition["status"] and "lastTransitionTime" in current:
        condition = condition | {"lastTransitionTime": current["lastTransitionTime"]}
    return status | {"conditions": [*(c for c in conditions if c is not current), condition]}
