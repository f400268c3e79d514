# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The resources that this server has, and what is particular about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object as decoded JSON. Stored ones are shared: never change one in place."""

Path = tuple[str, ...]

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "patch")


@dataclass(frozen=True, eq=False)
class Resource:
    """One row of API discovery, with the selectable fields of the resource. All are of the core group, v1."""

    plural: str
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...] = (*READ, *WRITE)
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, Path] | None = None
    """Field selectors beyond metadata.name and metadata.namespace, as label -> path in the object."""
    graceful: bool = False
    """True if a delete leaves time to terminate; the delete then answers with the object, else a Status."""

    @cached_property
    def type_prefix(self) -> bytes:
        """:returns: the head of a JSON object of this kind, up to its first own member.

        Objects are kept without kind and apiVersion, as list items have neither.
        """
        return f'{{"kind":"{self.kind}","apiVersion":"v1",'.encode()


POD_FIELDS: Mapping[str, Path] = {
    "spec.nodeName": ("spec", "nodeName"),
    "spec.restartPolicy": ("spec", "restartPolicy"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.phase": ("status", "phase"),
    "status.podIP": ("status", "podIP"),
    "status.nominatedNodeName": ("status", "nominatedNodeName"),
}

PODS = Resource(
    "pods",
    "Pod",
    "pod",
    namespaced=True,
    subresources=("status", "binding", "eviction", "log"),
    fields=POD_FIELDS,
    graceful=True,
)
NODES = Resource(
    "nodes",
    "Node",
    "node",
    namespaced=False,
    subresources=("status",),
    fields={"spec.unschedulable": ("spec", "unschedulable")},
)
NAMESPACES = Resource(
    "namespaces",
    "Namespace",
    "namespace",
    namespaced=False,
    verbs=(*READ, "create"),
    fields={"status.phase": ("status", "phase")},
)

RESOURCES = (PODS, NODES, NAMESPACES)


def find_resource(plural: str) -> Resource | None:
    """:returns: the resource of that name, or None if this server does not have it."""
    return next((resource for resource in RESOURCES if resource.plural == plural), None)
