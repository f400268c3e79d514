# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Per resource, what happens to an object on its way into the store."""

from __future__ import annotations

from cluster_lab.apiserver import pods
from cluster_lab.apiserver.resources import NAMESPACES, NODES, PODS, Manifest, Resource
from cluster_lab.apiserver.status import Cause


class Strategy:
    """The rules of a resource without rules of its own."""

    def new(self, obj: Manifest) -> Manifest:
        """:returns: the object with defaults."""
        return obj

    def check_new(self, _obj: Manifest) -> list[Cause]:
        """:returns: what makes a new object invalid."""
        return []

    def changed(self, new: Manifest, old: Manifest) -> Manifest:
        """:returns: what an update makes of the object; the part that it may not touch is the old one's."""
        return _keeping(new, old, "status")

    def check_change(self, _new: Manifest, _old: Manifest) -> list[Cause]:
        """:returns: what makes an update invalid."""
        return []


class StatusStrategy(Strategy):
    """The rules of a /status subresource."""

    def changed(self, new: Manifest, old: Manifest) -> Manifest:
        """:returns: the object with its old spec."""
        return _keeping(new, old, "spec")


class PodStrategy(Strategy):
    """The rules of pods."""

    def new(self, obj: Manifest) -> Manifest:
        """:returns: the pod with defaults, Pending."""
        return pods.new_pod(obj)

    def check_new(self, obj: Manifest) -> list[Cause]:
        """:returns: what makes a new pod invalid."""
        return pods.check_new_pod(obj)

    def check_change(self, new: Manifest, old: Manifest) -> list[Cause]:
        """:returns: a complaint if an immutable part of the spec changed."""
        return pods.check_spec_change(new, old)


class PodStatusStrategy(StatusStrategy):
    """The rules of pods/status."""

    def check_change(self, new: Manifest, old: Manifest) -> list[Cause]:
        """:returns: a complaint for each container that came back from the dead."""
        return pods.check_status_change(new, old)


class NodeStrategy(Strategy):
    """The rules of nodes. A new node keeps the status that its kubelet registers it with."""

    def new(self, obj: Manifest) -> Manifest:
        """:returns: the node with a spec and a status."""
        return obj | {"spec": obj.get("spec", {}), "status": obj.get("status", {})}


class NamespaceStrategy(Strategy):
    """The rules of namespaces."""

    def new(self, obj: Manifest) -> Manifest:
        """:returns: the namespace, Active, with the label that carries its name."""
        name = obj["metadata"].get("name", "")
        labels = obj["metadata"].get("labels", {}) | {"kubernetes.io/metadata.name": name}
        return obj | {
            "metadata": obj["metadata"] | {"labels": labels},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }


def _keeping(new: Manifest, old: Manifest, part: str) -> Manifest:
    rest = {name: value for name, value in new.items() if name != part}
    return rest | {part: old[part]} if part in old else rest


_DEFAULT = Strategy()
_STATUS = StatusStrategy()
_MAIN = {PODS: PodStrategy(), NODES: NodeStrategy(), NAMESPACES: NamespaceStrategy()}


def strategy_for(resource: Resource, subresource: str = "") -> Strategy:
    """:returns: the rules for writes to a resource or to its status."""
    if subresource == "status":
        return PodStatusStrategy() if resource is PODS else _STATUS
    return _MAIN.get(resource, _DEFAULT)
