# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Rules for pods: defaults on creation, which changes are allowed, what a delete leaves, and for how long.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cluster_lab.apiserver.metadata import timestamp
from cluster_lab.apiserver.resources import Manifest, Resource
from cluster_lab.apiserver.status import conflict

TERMINAL = ("Succeeded", "Failed")

_SPEC_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
}


def new_pod(pod: Manifest) -> Manifest:
    """:returns: the pod with the defaults that matter here; the status that came with it is dropped."""
    return pod | {"spec": _SPEC_DEFAULTS | pod.get("spec", {}), "status": {"phase": "Pending"}}


def check_new_pod(pod: Manifest) -> list[str]:
    """:returns: what makes a new pod invalid, as far as it is checked here."""
    containers = pod["spec"].get("containers")
    is_complete = containers and all(item.get("name") and item.get("image") for item in containers)
    return [] if is_complete else ["spec.containers: each has a name and an image"]


def check_spec_change(new: Manifest, old: Manifest) -> list[str]:
    """:returns: a complaint about a spec of which more is changed than its deadline."""
    deadline = {"activeDeadlineSeconds": new["spec"].get("activeDeadlineSeconds")}
    is_allowed = new["spec"] | deadline == old["spec"] | deadline
    return [] if is_allowed else ["spec: only activeDeadlineSeconds may be changed"]


def with_condition(status: Manifest, condition: Manifest, now: datetime) -> Manifest:
    """:returns: a status with one condition set; unchanged (the same object) if it says so already."""
    conditions = status.get("conditions", [])
    current: Manifest = next((c for c in conditions if c["type"] == condition["type"]), {})
    if current.items() >= condition.items():
        return status
    since = current.get("lastTransitionTime") if current.get("status") == condition["status"] else None
    stamped = condition | {"lastTransitionTime": since or timestamp(now)}
    return status | {"conditions": [*(c for c in conditions if c is not current), stamped]}


@dataclass(frozen=True)
class DeleteOptions:
    """The options of a delete that mean something here."""

    grace_period: int | None = None
    """Seconds; None leaves it to the pod."""
    uid: str | None = None
    resource_version: str | None = None

    @classmethod
    def parse(cls, options: Manifest) -> DeleteOptions:
        """:returns: the options that a body, or a query, names."""
        seconds, preconditions = options.get("gracePeriodSeconds"), options.get("preconditions") or {}
        return cls(
            None if seconds is None else int(seconds),
            preconditions.get("uid"),
            preconditions.get("resourceVersion"),
        )

    def check_preconditions(self, resource: Resource, obj: Manifest) -> None:
        """:raises ApiError: 409 if the object is not the one that the caller means."""
        metadata = obj["metadata"]
        for what, expected, found in (
            ("UID", self.uid, metadata["uid"]),
            ("ResourceVersion", self.resource_version, metadata["resourceVersion"]),
        ):
            if expected not in (None, found):
                why = f"the {what} in the precondition ({expected}) is not that in record ({found})"
                raise conflict(resource.kind, metadata["name"], why)


def terminating_metadata(pod: Manifest, grace_period: int | None, now: datetime) -> Manifest | None:
    """What a delete writes into a pod before anything is removed.

    :returns: the pod's new metadata, or None if a delete with the same or a shorter time is under way.
    """
    metadata: Manifest = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        return _marked(metadata, now, _first_grace(pod, grace_period))
    current = metadata["deletionGracePeriodSeconds"]
    if grace_period is None or grace_period >= current:
        return None
    deadline = datetime.strptime(metadata["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return _marked(metadata, deadline - timedelta(seconds=current), grace_period)


def _marked(metadata: Manifest, start: datetime, grace_period: int) -> Manifest:
    return metadata | {
        "deletionTimestamp": timestamp(start + timedelta(seconds=grace_period)),
        "deletionGracePeriodSeconds": grace_period,
    }


def _first_grace(pod: Manifest, asked: int | None) -> int:
    """A pod that no kubelet has, or that has ended, needs no time."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in TERMINAL:
        return 0
    return pod["spec"]["terminationGracePeriodSeconds"] if asked is None else asked
