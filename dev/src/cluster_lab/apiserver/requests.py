# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""From a method and a path to a verb on a resource.

https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster_lab.apiserver.resources import Resource, find_resource
from cluster_lab.apiserver.status import ApiError

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
    """get, list, watch, create, patch or delete; the method where it is none of them."""
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
    rest, namespace = words.split("/"), ""
    if len(rest) > 2 and rest[0] == "namespaces" and find_resource(rest[2]):
        namespace, rest = rest[1], rest[2:]
    target, (name, subresource) = find_resource(rest[0]), [*rest, "", ""][1:3]
    if prefix or target is None or subresource not in ("", *target.subresources):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    verb = (_ONE if name else _MANY).get(method, method)
    if verb == "list" and is_true(query.get("watch")):
        verb = "watch"
    return RequestInfo(method, path, verb, target.plural, subresource, namespace, name, query, target)
