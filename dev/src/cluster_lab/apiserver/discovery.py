# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which API groups and resources there are, as clients discover them; and the health checks.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

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
_SUBRESOURCE_KINDS: dict[str, Manifest] = {
    "status": {"verbs": ["get", "patch"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
    "log": {"verbs": ["get"]},
}


def document(path: str, address: str) -> Manifest | None:
    """:param address: host:port under which the server was reached.
    :returns: the document at a path, or None if it is no discovery path.
    """
    match path.rstrip("/"):
        case "/version":
            return VERSION
        case "/api":
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
        case "/api/v1":
            entries = [entry for resource in RESOURCES for entry in _entries(resource)]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": entries}
    return None


def _entries(resource: Resource) -> list[Manifest]:
    main: Manifest = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": sorted(resource.verbs),
    }
    base: Manifest = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    subresources = [
        {"name": f"{resource.plural}/{name}"} | base | _SUBRESOURCE_KINDS[name]
        for name in resource.subresources
    ]
    return [main, *subresources]
