# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Dependencies of launches: the one that a failure names, and those that a pod needs and has got. Pure.

A container's message says nothing about a registry, a quota or admission: only kubelet and API server do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import Cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow.providers.cncf.kubernetes_resilience.pods.images import registry_of
from airflow_resilience.outages import Dependency, DependencyKind

OF_NAMESPACES = (DependencyKind.QUOTA, DependencyKind.ADMISSION)
"""Dependencies of a pod in its namespace. A created pod had them all."""

AIRFLOW_API = Dependency(DependencyKind.AIRFLOW_API)


def find_dependency(failure: PodFailure, cause: Cause) -> Dependency | None:
    """
    Return the unavailable dependency of a failed launch; None if the failure names nothing that others need
    too.

    :param cause: the row of the table that applies
    """
    match cause.dependency:
        case None:
            return None
        case DependencyKind.REGISTRY:
            image = failure.container.image if failure.container else None
            return Dependency(DependencyKind.REGISTRY, registry_of(image)) if image else None
        case DependencyKind.AIRFLOW_API:
            return AIRFLOW_API
        case kind:
            return Dependency(kind, failure.facts.ref.namespace)


def needs_of(manifest: Mapping[str, Any]) -> Iterator[Dependency]:
    """
    Yield what the pod of a manifest needs.

    :param manifest: a ``v1.Pod`` as it is sent to the API server
    """
    for kind in OF_NAMESPACES:
        yield Dependency(kind, manifest["metadata"]["namespace"])
    spec = manifest["spec"]
    images = (item.get("image") for name in ("initContainers", "containers") for item in spec.get(name) or ())
    for host in dict.fromkeys(registry_of(image) for image in images if image):
        yield Dependency(DependencyKind.REGISTRY, host)
    yield AIRFLOW_API


def registries_of(pod: PodFacts | None, *, started: bool) -> set[Dependency]:
    """Return the registries of the images with which containers of a pod have started, or are still to."""
    return {
        Dependency(DependencyKind.REGISTRY, registry_of(item.image))
        for item in (pod.containers if pod else ())
        if item.started is started and item.image
    }
