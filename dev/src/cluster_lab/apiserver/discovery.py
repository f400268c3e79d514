# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which resources there are, as clients discover them.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

from cluster_lab.apiserver.resources import RESOURCES, SUBRESOURCES, Manifest, Resource

VERSION = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+cluster-lab",
}


def document(path: str) -> Manifest | None:
    """:returns: the document at a path, or None if it is no discovery path."""
    match path.rstrip("/"):
        case "/version":
            return VERSION
        case "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
        case "/api/v1":
            entries = [entry for resource in RESOURCES for entry in _entries(resource)]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": entries}
    return None


def _entries(resource: Resource) -> list[Manifest]:
    base: Manifest = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    own = {"name": resource.plural, "singularName": resource.kind.lower(), "verbs": sorted(resource.verbs)}
    subresources = [
        base | {"name": f"{resource.plural}/{name}"} | SUBRESOURCES[name] for name in resource.subresources
    ]
    return [base | own, *subresources]
