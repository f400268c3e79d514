# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Writes to the store under the API's rules; used by the HTTP handlers and by the controllers alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cluster_lab.apiserver import metadata as meta
from cluster_lab.apiserver.deletion import DeleteOptions, terminating_metadata
from cluster_lab.apiserver.pods import with_condition
from cluster_lab.apiserver.resources import NAMESPACES, PODS, Manifest, Resource
from cluster_lab.apiserver.status import (
    STALE_OBJECT,
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from cluster_lab.apiserver.store import Record, Store
from cluster_lab.apiserver.strategies import strategy_for

Edit = Callable[[Manifest], Manifest]
"""From a stored object to the wanted one, without changing the stored one."""

_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def _now() -> datetime:
    return datetime.now(UTC)


class Registry:
    """The API's operations without HTTP. Each is one step on the event loop: no write is seen half done."""

    def __init__(self, store: Store, clock: Callable[[], datetime] = _now) -> None:
        self.store = store
        self._clock = clock

    def get(self, resource: Resource, namespace: str, name: str) -> Record:
        """:raises ApiError: 404."""
        record = self.store.get(resource, (namespace, name))
        if record is None:
            raise not_found(resource.plural, name)
        return record

    def create(self, resource: Resource, namespace: str, body: Manifest) -> Record:
        """:raises ApiError: 404 for an unknown namespace, 409 for a taken name, 422 for an invalid object."""
        meta.check_type(resource, body)
        meta.check_shape(body)
        if namespace and self.store.get(NAMESPACES, ("", namespace)) is None:
            raise not_found("namespaces", namespace)
        metadata = meta.new_metadata(body.get("metadata", {}), namespace, self._clock())
        strategy = strategy_for(resource)
        obj = strategy.new(meta.without_type(body) | {"metadata": metadata})
        if causes := [*meta.check_metadata(metadata), *strategy.check_new(obj)]:
            raise invalid(resource.kind, metadata.get("name", ""), causes)
        if self.store.get(resource, (namespace, metadata["name"])):
            raise already_exists(resource.plural, metadata["name"])
        return self.store.write(resource, obj)

    def update(
        self, resource: Resource, namespace: str, name: str, edit: Edit, subresource: str = ""
    ) -> Record:
        """Change an object. An edit that changes nothing writes nothing: no new version, no event.

        :raises ApiError: 404, 409 for an edit of another version or object, 422 for a forbidden change.
        """
        current = self.get(resource, namespace, name)
        body = edit(current.obj)
        meta.check_type(resource, body)
        meta.check_shape(body)
        self._check_identity(current, body.get("metadata", {}))
        strategy = strategy_for(resource, subresource)
        metadata = meta.updated_metadata(body.get("metadata", {}), current.obj["metadata"])
        new = strategy.changed(meta.without_type(body) | {"metadata": metadata}, current.obj)
        if causes := [*meta.check_metadata(metadata), *strategy.check_change(new, current.obj)]:
            raise invalid(resource.kind, name, causes)
        return self._replace(current, new)

    def _check_identity(self, current: Record, given: Manifest) -> None:
        resource, stored = current.resource, current.obj["metadata"]
        namespace, name = current.key
        if given.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
            )
        if given.get("namespace", namespace) != namespace:
            raise bad_request(meta.NAMESPACE_MISMATCH)
        if given.get("uid", stored["uid"]) != stored["uid"]:
            cause = Cause("metadata.uid", f'Invalid value: "{given["uid"]}": field is immutable')
            raise invalid(resource.kind, name, [cause])
        if given.get("resourceVersion") not in (None, "", stored["resourceVersion"]):
            raise conflict(resource.plural, name, STALE_OBJECT)

    def _replace(self, current: Record, new: Manifest) -> Record:
        if new == current.obj:
            return current
        metadata = new["metadata"]
        waited_for_finalizers = current.obj["metadata"].get("finalizers") and "deletionTimestamp" in metadata
        if waited_for_finalizers and not self._holds(metadata):
            # The edit that takes the last finalizer away is not stored: it becomes the removal.
            return self.store.remove(current)
        return self.store.write(current.resource, new)

    @staticmethod
    def _holds(metadata: Manifest) -> bool:
        return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> Record:
        """Delete an object, or start to.

        A graceful resource is marked first and then, if no time is left to it, removed. These are two writes:
        a watch sees MODIFIED with the deletionTimestamp and then DELETED, even for a force delete.

        :raises ApiError: 404, or 409 if a precondition does not hold.
        """
        current = self.get(resource, namespace, name)
        options.check_preconditions(resource, current.obj)
        if resource.graceful:
            metadata = terminating_metadata(current.obj, options.grace_period, self._clock())
            if metadata is None:
                return current
        elif current.obj["metadata"].get("finalizers"):
            metadata = current.obj["metadata"] | {
                "deletionTimestamp": meta.timestamp(self._clock()),
                "deletionGracePeriodSeconds": 0,
            }
        else:
            return self.store.remove(current)
        if metadata != current.obj["metadata"]:
            current = self.store.write(resource, current.obj | {"metadata": metadata})
        return current if self._holds(metadata) else self.store.remove(current)

    def set_pod_condition(self, pod: Record, condition: Manifest) -> Record:
        """Set a condition of a pod, in a write of its own."""
        return self._replace(pod, pod.obj | {"status": self._conditioned(pod, condition)})

    def fail_pod(self, pod: Record, condition: Manifest | None) -> Record:
        """Declare a pod failed in place of its kubelet, in one write."""
        status = self._conditioned(pod, condition) if condition else pod.obj["status"]
        return self._replace(pod, pod.obj | {"status": status | {"phase": "Failed"}})

    def _conditioned(self, pod: Record, condition: Manifest) -> Manifest:
        stamped = condition | {"lastTransitionTime": meta.timestamp(self._clock())}
        return with_condition(pod.obj["status"], stamped)

    def bind(self, namespace: str, name: str, binding: Manifest) -> Record:
        """Give a pod to a node. As in Kubernetes, nothing checks that there is such a node.

        :raises ApiError: 404, 409 if the pod has a node or is being deleted, 422 without a target.
        """
        target = binding.get("target") or {}
        if target.get("kind", "Node") not in ("", "Node"):
            raise invalid("Binding", name, [forbidden("target.kind", 'only "Node" is supported')])
        node = target.get("name")
        if not node:
            raise invalid("Binding", name, [forbidden("target.name", "a node is required")])
        pod = self.get(PODS, namespace, name)
        if "deletionTimestamp" in pod.obj["metadata"]:
            raise conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
        if assigned := pod.obj["spec"].get("nodeName"):
            raise conflict("pods/binding", name, f'pod {name} is already assigned to node "{assigned}"')
        spec = pod.obj["spec"] | {"nodeName": node}
        status = self._conditioned(pod, {"type": "PodScheduled", "status": "True"})
        return self.store.write(PODS, pod.obj | {"spec": spec, "status": status})

    def evict(self, namespace: str, name: str, eviction: Manifest) -> None:
        """Say who asked for it, in a condition, and delete the pod. There are no disruption budgets here.

        https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/

        :raises ApiError: as for a delete; 400 if the body is about another pod.
        """
        if (eviction.get("metadata") or {}).get("name") != name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = DeleteOptions.parse(eviction.get("deleteOptions") or {})
        pod = self.get(PODS, namespace, name)
        options.check_preconditions(PODS, pod.obj)
        self.set_pod_condition(pod, _EVICTED)
        self.delete(PODS, namespace, name, DeleteOptions(options.grace_period, options.uid))
