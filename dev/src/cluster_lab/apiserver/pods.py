# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Rules for pods: defaults on creation and which changes are allowed.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from typing import Any

from cluster_lab.apiserver.resources import Manifest
from cluster_lab.apiserver.status import Cause, forbidden, required

TERMINAL = ("Succeeded", "Failed")

_SPEC_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONTAINER_DEFAULTS = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_NODE_PROBLEM_TOLERATION_SECONDS = 300
_NODE_PROBLEMS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE_SPEC = ("activeDeadlineSeconds", "tolerations")
_SPEC_CHANGE = (
    "pod updates may not change fields other than spec.containers[*].image, spec.initContainers[*].image, "
    "spec.activeDeadlineSeconds or spec.tolerations (only additions to existing tolerations)"
)


def new_pod(pod: Manifest) -> Manifest:
    """:returns: the pod with its defaults; the status that came with it is dropped."""
    spec = _SPEC_DEFAULTS | {"securityContext": {}} | pod.get("spec", {})
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_container(container) for container in spec[field]]
    spec["tolerations"] = _tolerations(spec.get("tolerations", []))
    return pod | {"spec": spec, "status": {"phase": "Pending", "qosClass": qos_class(spec)}}


def _container(container: Manifest) -> Manifest:
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    policy = "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
    return _CONTAINER_DEFAULTS | {"imagePullPolicy": policy, "resources": {}} | container


def _tolerations(given: list[Manifest]) -> list[Manifest]:
    """As the DefaultTolerationSeconds admission plugin does it."""
    keys = {t.get("key") for t in given if t.get("effect") in (None, "", "NoExecute")}
    if None in keys:
        return given
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _NODE_PROBLEM_TOLERATION_SECONDS,
        }
        for key in _NODE_PROBLEMS
        if key not in keys
    ]
    return [*given, *added]


def qos_class(spec: Manifest) -> str:
    """:returns: Guaranteed, Burstable or BestEffort.

    https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
    """
    resources = [c.get("resources", {}) for f in ("containers", "initContainers") for c in spec.get(f, [])]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    return "Guaranteed" if all(map(_is_guaranteed, resources)) else "Burstable"


def _is_guaranteed(resources: Manifest) -> bool:
    limits: dict[str, Any] = resources.get("limits", {})
    requests = limits | resources.get("requests", {})
    return all(name in limits and requests[name] == limits[name] for name in ("cpu", "memory"))


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
    """:returns: the one complaint about a changed spec, if something else than the mutable fields changed."""
    if _immutable_part(new.get("spec", {})) == _immutable_part(old["spec"]):
        return []
    return [forbidden("spec", _SPEC_CHANGE)]


def _immutable_part(spec: Manifest) -> Manifest:
    part = {name: value for name, value in spec.items() if name not in _MUTABLE_SPEC}
    for field in ("containers", "initContainers"):
        if field in part:
            part[field] = [{k: v for k, v in c.items() if k != "image"} for c in part[field]]
    return part


def with_status(new: Manifest, old: Manifest) -> Manifest:
    """:returns: a pod after a write to /status: the spec, the owners and the QoS class stay."""
    status = {"qosClass": old["status"].get("qosClass")} | new.get("status", {})
    metadata = {name: value for name, value in new["metadata"].items() if name != "ownerReferences"}
    if owners := old["metadata"].get("ownerReferences"):
        metadata["ownerReferences"] = owners
    return new | {"metadata": metadata, "spec": old["spec"], "status": status}


def check_status_change(new: Manifest, old: Manifest) -> list[Cause]:
    """:returns: containers that came back from the dead although the restart policy does not restart them."""
    policy = old["spec"]["restartPolicy"]
    if policy == "Always":
        return []
    states = {s["name"]: s.get("state", {}) for s in new["status"].get("containerStatuses", [])}
    return [
        forbidden(
            f"status.containerStatuses[{index}].state", "may not be transitioned to non-terminated state"
        )
        for index, status in enumerate(old["status"].get("containerStatuses", []))
        if _stays_terminated(status, policy)
        and "terminated" not in states.get(status["name"], {"terminated": {}})
    ]


def _stays_terminated(status: Manifest, policy: str) -> bool:
    terminated = status.get("state", {}).get("terminated")
    return bool(terminated) and not (policy == "OnFailure" and terminated.get("exitCode"))


def with_condition(status: Manifest, condition: Manifest) -> Manifest:
    """:returns: a status with one condition set; unchanged (the same object) if it says so already."""
    conditions = status.get("conditions", [])
    current = next((c for c in conditions if c["type"] == condition["type"]), None)
    if current and all(current.get(k) == v for k, v in condition.items() if k != "lastTransitionTime"):
        return status
    if current and current["status"] == condition["status"] and "lastTransitionTime" in current:
        condition = condition | {"lastTransitionTime": current["lastTransitionTime"]}
    if current is None:
        return status | {"conditions": [*conditions, condition]}
    return status | {"conditions": [condition if c is current else c for c in conditions]}
