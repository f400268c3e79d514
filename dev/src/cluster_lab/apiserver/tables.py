# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The columns that kubectl prints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cluster_lab.apiserver.resources import NODES, PODS, Manifest, Resource
from cluster_lab.apiserver.store import Record

_COLUMNS = {
    PODS: ("Name", "Ready", "Status", "Restarts", "Age", "Node"),
    NODES: ("Name", "Status", "Age"),
}
_DEFAULT_COLUMNS = ("Name", "Age")
_WIDE_ONLY = ("Node",)


def columns(resource: Resource) -> list[Manifest]:
    """:returns: the column definitions of a resource's table."""
    return [
        {
            "name": name,
            "type": "integer" if name == "Restarts" else "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 1 if name in _WIDE_ONLY else 0,
        }
        for name in _COLUMNS.get(resource, _DEFAULT_COLUMNS)
    ]


def row(record: Record) -> list[Any]:
    """:returns: the cells of an object, in the order of its columns."""
    name, age = record.obj["metadata"]["name"], _age(record.obj["metadata"]["creationTimestamp"])
    if record.resource is PODS:
        return _pod_row(name, age, record.obj)
    if record.resource is NODES:
        return [name, _node_status(record.obj), age]
    return [name, age]


def _pod_row(name: str, age: str, pod: Manifest) -> list[Any]:
    statuses = pod["status"].get("containerStatuses", [])
    ready = sum(bool(status.get("ready")) for status in statuses)
    restarts = sum(status.get("restartCount", 0) for status in statuses)
    total = len(pod["spec"]["containers"])
    return [name, f"{ready}/{total}", _pod_status(pod), restarts, age, pod["spec"].get("nodeName", "<none>")]


def _pod_status(pod: Manifest) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    for status in pod["status"].get("containerStatuses", []):
        for state in ("waiting", "terminated"):
            if reason := status.get("state", {}).get(state, {}).get("reason"):
                return str(reason)
    return str(pod["status"].get("reason") or pod["status"]["phase"])


def _node_status(node: Manifest) -> str:
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    cordoned = ",SchedulingDisabled" if node["spec"].get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + cordoned


def _age(created: str) -> str:
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
