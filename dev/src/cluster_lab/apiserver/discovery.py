# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which API groups and resources there are, as clients discover them; and the health checks.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cluster_lab.apiserver.resources import RESOURCES, Manifest, Resource

HEALTH = ("/healthz", "/readyz", "/livez")
VERSION = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+cluster-lab",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_GROUPS = ("policy", "coordination.k8s.io")
_SUBRESOURCE_KINDS: dict[str, Manifest] = {
    "status": {"verbs": ["get", "patch", "update"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
    "log": {"verbs": ["get"]},
}


def document(path: str, address: str) -> Manifest | None:
    """:param address: host:port under which the server was reached.
    :returns: the document at a path, or None if it is no discovery path.
    """
    make = _DOCUMENTS.get(path.rstrip("/"))
    return make(address) if make else None


def _core_versions(address: str) -> Manifest:
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def _group_list(_address: str) -> Manifest:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _GROUPS]}


def _group(name: str) -> Manifest:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _group_document(name: str, _address: str) -> Manifest:
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name)


def _group_resources(group: str, _address: str) -> Manifest:
    entries = [entry for resource in RESOURCES if resource.group == group for entry in _entries(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/v1" if group else "v1",
        "resources": entries,
    }


def _entries(resource: Resource) -> list[Manifest]:
    main: Manifest = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": sorted(resource.verbs),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    base: Manifest = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    subresources = [
        {"name": f"{resource.plural}/{name}"} | base | _SUBRESOURCE_KINDS[name]
        for name in resource.subresources
    ]
    return [main, *subresources]


_DOCUMENTS: dict[str, Callable[[str], Manifest]] = {
    "/version": lambda _: VERSION,
    "/api": _core_versions,
    "/apis": _group_list,
    "/api/v1": partial(_group_resources, ""),
    **{f"/apis/{name}": partial(_group_document, name) for name in _GROUPS},
    **{f"/apis/{name}/v1": partial(_group_resources, name) for name in _GROUPS},
}
