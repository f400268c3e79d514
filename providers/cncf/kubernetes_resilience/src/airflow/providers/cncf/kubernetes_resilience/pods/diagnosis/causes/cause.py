# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A row of the table, and the predicates that its condition consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerFacts, ContainerType
from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.outages import DependencyKind
from airflow_resilience.retry_policy.patterns import Pattern

Predicate = Callable[[PodFailure], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason for which worker pods die."""

    name: str
    """Shown to people, and a tag of metrics. Kebab case; it never changes."""
    applies: Predicate = field(repr=False, compare=False)
    """Whether the row applies to a failure, if no earlier row does."""
    category: StateChangeCategory = StateChangeCategory.INFRASTRUCTURE
    """If unclear, the platform's: one more launch is the smaller error than a retry of the task's own."""
    reason: StateChangeReason
    why: str
    """A sentence for people."""
    url: str
    """The documentation that the row rests on."""
    launch_only: bool = False
    """Whether the row is about launch failures only: of a task that was running the same would mean less."""
    dependency: DependencyKind | None = None
    """Dependency that was not available, and that other launches need too; None for what is the pod's own, or
    its node's."""
    node_bound: bool = False
    """Whether the node is to blame, as far as the row tells, so that the next launch there may fail alike."""


def pod_reason(*reasons: str) -> Predicate:
    """Return whether the pod as a whole has one of these reasons."""
    return lambda failure: failure.facts.reason in reasons


def of_container(holds: Callable[[ContainerFacts], bool]) -> Predicate:
    """Apply a condition to the deciding container. Without a deciding container, the predicate is false."""
    return lambda failure: failure.container is not None and holds(failure.container)


def container_reason(*reasons: str) -> Predicate:
    """Return whether the container that decides has one of these reasons, waiting or terminated."""
    return of_container(lambda container: container.reason in reasons)


NOT_STARTED = container_reason(
    "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"
)
"""Whether the container that decides could not be created or started; its message is the runtime's."""


def said(text: Callable[[PodFailure], str | None], pattern: str) -> Predicate:
    """
    Return whether the pattern is found in a text of the failure, in upper or lower case.

    A task can write most of these texts, so the table has no other regular expressions than these.
    """
    compiled = Pattern(f"(?i){pattern}")
    return lambda failure: compiled.found_in(text(failure) or "")


def container_message(failure: PodFailure) -> str:
    """Return the message of the container that decides; empty if there is none."""
    return failure.container.message or "" if failure.container else ""


def container_says(pattern: str) -> Predicate:
    """Return whether the pattern is found in the message of the container that decides."""
    return said(container_message, pattern)


def container_failed(type_: ContainerType) -> Predicate:
    """Return whether a container of that type decides, and has failed."""
    return both(is_container(type_), of_container(lambda container: container.failed))


def is_container(type_: ContainerType) -> Predicate:
    """Return whether a container of that type decides."""
    return of_container(lambda container: container.type is type_)


def both(first: Predicate, second: Predicate) -> Predicate:
    """Return whether both hold."""
    return lambda failure: first(failure) and second(failure)


def either(*predicates: Predicate) -> Predicate:
    """Return whether one of these holds."""
    return lambda failure: any(holds(failure) for holds in predicates)
