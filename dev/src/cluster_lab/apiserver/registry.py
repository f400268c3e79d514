# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Writes to the store under the API's rules; used by the HTTP handlers and by the controllers alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cluster_lab.apiserver import metadata as meta
from cluster_lab.apiserver.pods import (
    DeleteOptions,
    check_new_pod,
    check_spec_change,
    new_pod,
    terminating_metadata,
    with_condition,
)
from cluster_lab.apiserver.resources import NAMESPACES, NODES, PODS, Manifest, Resource
from cluster_lab.apiserver.status import ApiError, conflict, invalid, not_found
from cluster_lab.apiserver.store import Record, Store

Edit = Callable[[Manifest], Manifest]
"""From a stored object to the wanted one, without changing the stored one."""


def _now() -> datetime:
    return datetime.now(UTC)


class Registry:
    """The API's operations without HTTP. Each is one step on the event loop: no write is seen half done."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, resource: Resource, namespace: str, name: str) -> Record:
        """:raises ApiError: 404."""
        record = self.store.get(resource, (namespace, name))
        if record is None:
            raise not_found(resource.plural, name)
        return record

    def create(self, resource: Resource, namespace: str, body: Manifest) -> Record:
        """:raises ApiError: 404 for an unknown namespace, 409 for a taken name, 422 for an invalid object."""
        if namespace and self.store.get(NAMESPACES, ("", namespace)) is None:
            raise not_found("namespaces", namespace)
        metadata = meta.new_metadata(body.get("metadata", {}), namespace, _now())
        obj = _with_defaults(resource, meta.without_type(body) | {"metadata": metadata})
        if problems := meta.check_metadata(metadata) + (check_new_pod(obj) if resource is PODS else []):
            raise invalid(resource.kind, metadata.get("name", ""), problems)
        if self.store.get(resource, (namespace, metadata["name"])):
            why = f'{resource.plural} "{metadata["name"]}" already exists'
            raise ApiError(409, "AlreadyExists", why)
        return self.store.write(resource, obj)

    def update(
        self, resource: Resource, namespace: str, name: str, edit: Edit, subresource: str = ""
    ) -> Record:
        """Change an object. An edit that changes nothing writes nothing: no new version, no event.

        :raises ApiError: 404, 422 for an edit of another object or a forbidden change.
        """
        current = self.get(resource, namespace, name)
        body = edit(current.obj)
        if (uid := body["metadata"].get("uid")) not in (None, current.obj["metadata"]["uid"]):
            raise invalid(resource.kind, name, [f'metadata.uid: "{uid}": field is immutable'])
        metadata = meta.updated_metadata(body["metadata"], current.obj["metadata"])
        untouched = "spec" if subresource else "status"
        new = meta.without_type(body) | {"metadata": metadata, untouched: current.obj[untouched]}
        problems = check_spec_change(new, current.obj) if resource is PODS else []
        if problems := meta.check_metadata(metadata) + problems:
            raise invalid(resource.kind, name, problems)
        return self._replace(current, new)

    def _replace(self, current: Record, new: Manifest) -> Record:
        return current if new == current.obj else self.store.write(current.resource, new)

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> Record:
        """Delete an object, or start to.

        A graceful resource is marked first and then, if no time is left to it, removed. These are two writes:
        a watch sees MODIFIED with the deletionTimestamp and then DELETED, even for a force delete.

        :raises ApiError: 404, or 409 if a precondition does not hold.
        """
        current = self.get(resource, namespace, name)
        options.check_preconditions(resource, current.obj)
        if not resource.graceful:
            return self.store.remove(current)
        metadata = terminating_metadata(current.obj, options.grace_period, _now())
        if metadata is None:
            return current
        marked = self.store.write(resource, current.obj | {"metadata": metadata})
        return marked if metadata["deletionGracePeriodSeconds"] else self.store.remove(marked)

    def set_pod_condition(self, pod: Record, condition: Manifest) -> Record:
        """Set a condition of a pod, in a write of its own."""
        return self._replace(pod, pod.obj | {"status": with_condition(pod.obj["status"], condition, _now())})

    def bind(self, namespace: str, name: str, binding: Manifest) -> Record:
        """Give a pod to a node. As in Kubernetes, nothing checks that there is such a node.

        :raises ApiError: 404, 409 if the pod has a node.
        """
        pod = self.get(PODS, namespace, name)
        if assigned := pod.obj["spec"].get("nodeName"):
            raise conflict("pods/binding", name, f'pod {name} is already assigned to node "{assigned}"')
        spec = pod.obj["spec"] | {"nodeName": binding["target"]["name"]}
        scheduled = {"type": "PodScheduled", "status": "True"}
        status = with_condition(pod.obj["status"], scheduled, _now())
        return self.store.write(PODS, pod.obj | {"spec": spec, "status": status})


def _with_defaults(resource: Resource, obj: Manifest) -> Manifest:
    """:returns: a new object as it is stored. A node keeps the status that its kubelet registers it with."""
    if resource is PODS:
        return new_pod(obj)
    if resource is NODES:
        return {"spec": {}, "status": {}} | obj
    return obj | {"status": {"phase": "Active"}}
