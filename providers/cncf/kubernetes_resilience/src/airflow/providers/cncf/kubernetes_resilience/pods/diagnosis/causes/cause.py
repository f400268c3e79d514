# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A row of the table, and the predicates that its condition consists of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerType
from airflow_resilience.context import StateChangeCategory, StateChangeReason

Predicate = Callable[[PodFailure], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for which worker pods die."""

    name: str
    """Shown to people, and a tag of metrics. Kebab case; it never changes."""
    applies: Predicate = field(repr=False, compare=False)
    """Whether the row applies to a failure, if no earlier row does."""
    category: StateChangeCategory
    reason: StateChangeReason
    why: str
    """One sentence for people."""
    url: str
    """The documentation that the row rests on."""
    launch_only: bool = False
    """Whether the row is about launch failures only: of a task that was running the same would mean less."""


def pod_reason(*reasons: str) -> Predicate:
    """Return whether the pod as a whole has one of these reasons."""
    return lambda failure: failure.facts.reason in reasons


def container_reason(*reasons: str) -> Predicate:
    """Return whether the container that decides has one of these reasons, waiting or terminated."""
    return lambda failure: failure.container is not None and failure.container.reason in reasons


def container_says(pattern: str) -> Predicate:
    """Return whether the pattern is found in the message of the container that decides."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda failure: (
        failure.container is not None and compiled.search(failure.container.message or "") is not None
    )


def container_failed(type_: ContainerType) -> Predicate:
    """Return whether a container of that type decides, and has failed."""
    return lambda failure: (
        failure.container is not None and failure.container.type is type_ and failure.container.failed
    )


def is_container(type_: ContainerType) -> Predicate:
    """Return whether a container of that type decides."""
    return lambda failure: failure.container is not None and failure.container.type is type_


def both(first: Predicate, second: Predicate) -> Predicate:
    """Return whether both hold."""
    return lambda failure: first(failure) and second(failure)


def either(first: Predicate, second: Predicate) -> Predicate:
    """Return whether one of the two holds."""
    return lambda failure: first(failure) or second(failure)
