# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Carries out what retry policies have decided to change in the launches of a try.

.. seealso:: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from kubernetes.client import V1Container, V1Pod, V1Toleration
from kubernetes.utils.quantity import parse_quantity

from airflow_resilience.mutation import MemoryIncrease, Mutation

_MEBIBYTE: Final = 2**20


def mutate(pod: V1Pod, worker: V1Container, mutations: Iterable[Mutation]) -> None:
    """
    Change a pod.

    :param pod: is changed, as its template and its task have it
    :param worker: its container that runs the task
    :param mutations: what was decided after each launch before, oldest first
    :raises ValueError: if an amount of memory is no quantity of Kubernetes
    """
    spec = pod.spec
    # What all containers have together is limited, too, if the pod states it.
    whole = getattr(spec, "resources", None)
    most = (whole.limits or {}).get("memory") if whole else None
    for mutation in mutations:
        if mutation.memory:
            _increase(worker, mutation.memory, most)
        if mutation.node_selector:
            spec.node_selector = {**(spec.node_selector or {}), **mutation.node_selector}
        own = spec.tolerations or []
        new = [item for item in map(_toleration, mutation.tolerations) if item not in own]
        spec.tolerations = [*own, *new] or None
        if mutation.priority_class_name:
            spec.priority_class_name = mutation.priority_class_name
            # The API server sets them by the class, and refuses others.
            spec.priority = spec.preemption_policy = None


def _increase(worker: V1Container, memory: MemoryIncrease, most: str | None) -> None:
    """
    Raise what a container requests and what limits it; nothing that it does not state.

    :param most: what the containers of the pod may have together; None if that is not stated
    """
    if worker.resources is None:
        return
    highest = min((memory.limit, most or memory.limit), key=parse_quantity)
    limit = parse_quantity(highest)
    for amounts in (worker.resources.requests, worker.resources.limits):
        # An empty field of a template is None here, which the API server takes for nothing stated.
        stated = parse_quantity((amounts or {}).get("memory") or limit)
        if stated >= limit:
            continue
        raised = min(limit, stated * Decimal(memory.factor))
        mebibytes = math.ceil(raised / _MEBIBYTE)
        amounts["memory"] = f"{mebibytes}Mi" if mebibytes * _MEBIBYTE < limit else highest


def _toleration(stated: Mapping[str, Any]) -> V1Toleration:
    return V1Toleration(
        key=stated.get("key"),
        operator=stated.get("operator"),
        value=stated.get("value"),
        effect=stated.get("effect"),
        toleration_seconds=stated.get("tolerationSeconds"),
    )
