# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""From a method and a path to a verb on a resource.

https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster_lab.apiserver.resources import SUBRESOURCES, Resource, find_resource
from cluster_lab.apiserver.status import method_not_allowed, no_such_path

_ONE = {"GET": "get", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_MANY = {"GET": "list", "POST": "create"}
_TRUE = ("1", "true", "True", "t", "T", "TRUE")


def is_true(text: str | None) -> bool:
    """:returns: a boolean query parameter as the API reads it; absent is False."""
    return text in _TRUE


@dataclass(frozen=True)
class RequestInfo:
    """What a request asks for. Fault predicates get it too."""

    method: str
    path: str
    verb: str
    """get, list, watch, create, patch or delete."""
    resource: str
    """Plural, such as pods."""
    subresource: str
    namespace: str
    name: str
    query: Mapping[str, str]
    target: Resource


def resolve(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """:raises ApiError: 404 for a path that is no resource, 405 for a verb that the resource lacks."""
    prefix, _, words = path.strip("/").partition("api/v1/")
    if prefix:
        raise no_such_path()
    rest, namespace = words.split("/"), ""
    if len(rest) > 2 and rest[0] == "namespaces" and find_resource(rest[2]):
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3 or not all(rest):
        raise no_such_path()
    target = find_resource(rest[0])
    if target is None or (namespace and not target.namespaced):
        raise no_such_path()
    name, subresource = [*rest, "", ""][1:3]
    if name and target.namespaced and not namespace:
        raise no_such_path()
    verb = _verb(method, target, name, subresource, query)
    if verb == "create" and target.namespaced and not namespace:
        raise method_not_allowed()
    return RequestInfo(method, path, verb, target.plural, subresource, namespace, name, query, target)


def _verb(method: str, target: Resource, name: str, subresource: str, query: Mapping[str, str]) -> str:
    if subresource and subresource not in target.subresources:
        raise no_such_path()
    verb = (_ONE if name else _MANY).get(method)
    if verb == "list" and is_true(query.get("watch")):
        verb = "watch"
    allowed = SUBRESOURCES[subresource]["verbs"] if subresource else target.verbs
    if verb not in allowed or (verb == "create" and bool(name) != bool(subresource)):
        raise method_not_allowed()
    return str(verb)
