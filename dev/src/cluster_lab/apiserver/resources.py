# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The resources that this server has, what is particular about each, and how clients discover them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object as decoded JSON. Stored ones are shared: never change one in place."""

VERBS = ("create", "delete", "get", "list", "patch", "watch")

SUBRESOURCES: dict[str, Manifest] = {
    "status": {"verbs": ["patch"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
    "log": {"verbs": ["get"]},
}
"""What is particular about the discovery of each."""


@dataclass(frozen=True, eq=False)
class Resource:
    """One row of API discovery, All are of the core group, v1."""

    plural: str
    kind: str
    namespaced: bool
    subresources: tuple[str, ...] = ()
    graceful: bool = False
    """True if a delete leaves time to terminate."""

    @cached_property
    def type_prefix(self) -> bytes:
        """:returns: the head of a JSON object of this kind, up to its first own member.

        Objects are kept without kind and apiVersion, as list items have neither.
        """
        return f'{{"kind":"{self.kind}","apiVersion":"v1",'.encode()


PODS = Resource(
    "pods",
    "Pod",
    namespaced=True,
    subresources=("status", "binding", "eviction", "log"),
    graceful=True,
)
NODES = Resource("nodes", "Node", namespaced=False, subresources=("status",))
NAMESPACES = Resource("namespaces", "Namespace", namespaced=False)

RESOURCES = (PODS, NODES, NAMESPACES)


def find_resource(plural: str) -> Resource | None:
    """:returns: the resource of that name, or None if this server does not have it."""
    return next((resource for resource in RESOURCES if resource.plural == plural), None)


_VERSION = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+cluster-lab",
}


def discovery_document(path: str) -> Manifest | None:
    """:returns: the document at a path, or None if it is no discovery path.

    https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
    """
    match path.rstrip("/"):
        case "/version":
            return _VERSION
        case "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
        case "/api/v1":
            entries = [entry for resource in RESOURCES for entry in _entries(resource)]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": entries}
    return None


def _entries(resource: Resource) -> list[Manifest]:
    base: Manifest = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    own = {"name": resource.plural, "singularName": resource.kind.lower(), "verbs": VERBS}
    subresources = [
        base | {"name": f"{resource.plural}/{name}"} | SUBRESOURCES[name] for name in resource.subresources
    ]
    return [base | own, *subresources]
