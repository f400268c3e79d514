# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Conditions that a rule can state about a failure, a class for each.

Each condition returns a finding: whether the condition holds, and the reason as a clause, which ``explain``
shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from airflow_resilience.context import StateChangeCategory
from airflow_resilience.retry_policy.evidence import ConditionEvidence, ContainerEvidence, Evidence, Phase
from airflow_resilience.retry_policy.patterns import Pattern

SEARCHED_LENGTH: Final = 4096
"""Characters of a message that are searched. The kubelet keeps no more of a container's message, and longer
messages of other sources must not block the scheduler.

.. seealso:: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""


class Finding(NamedTuple):
    """The result of a condition for a failure."""

    holds: bool
    why: str
    """A clause about the failure, which is true in either case."""


class Matcher(Protocol):
    """A condition of a rule."""

    def check(self, evidence: Evidence) -> Finding:
        """Say whether the condition holds for the failure, and why."""
        ...


class Operator(StrEnum):
    """Comparisons of an exit code with the stated values, as in a Job's ``podFailurePolicy``."""

    IN = "In"
    NOT_IN = "NotIn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerScope:
    """The containers of a worker that a condition looks at."""

    name: str | None = None
    """None for all containers."""
    include_init: bool = True
    """Whether init containers and native sidecars count too."""

    def of(self, evidence: Evidence) -> tuple[ContainerEvidence, ...]:
        """Return those containers."""
        return tuple(
            container
            for container in evidence.containers
            if self.name in (None, container.name) and (self.include_init or not container.is_init)
        )

    def __str__(self) -> str:
        return "any container" if self.name is None else self.name


EVERY_CONTAINER: Final = ContainerScope()


@dataclass(frozen=True, slots=True)
class OnPhases:
    """Condition: the phase of the task."""

    phases: frozenset[Phase]

    def check(self, evidence: Evidence) -> Finding:
        """Compare the failure's phase."""
        found = evidence.phase in self.phases
        return Finding(found, comparison([f"phase {evidence.phase}"], found, self.phases))


@dataclass(frozen=True, slots=True)
class OnCategories:
    """Condition: the category of the failure."""

    categories: frozenset[StateChangeCategory]

    def check(self, evidence: Evidence) -> Finding:
        """Compare the category of the failure's context."""
        found = evidence.context.category in self.categories
        return Finding(found, comparison([f"category {evidence.context.category}"], found, self.categories))


@dataclass(frozen=True, slots=True)
class OnContainer:
    """Condition: the container whose failure ended the worker."""

    name: str

    def check(self, evidence: Evidence) -> Finding:
        """Compare the name of the deciding container."""
        decided = evidence.deciding_container
        if decided is None:
            return Finding(False, f"no container ended the worker, so {self.name} did not")
        if decided != self.name:
            return Finding(False, f"{decided} ended the worker, {self.name} did not")
        return Finding(True, f"{decided} ended the worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnExitCodes:
    """
    Condition: exit codes of containers, compared as in a Kubernetes Job's ``podFailurePolicy``.

    A container that succeeded, or has no exit code, is ignored. One match is enough, for ``NotIn`` too.

    .. seealso:: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """

    operator: Operator
    values: frozenset[int]
    containers: ContainerScope = EVERY_CONTAINER

    def check(self, evidence: Evidence) -> Finding:
        """Compare the exit codes of the containers."""
        failed = [container for container in self.containers.of(evidence) if container.exit_code]
        if not failed:
            return Finding(False, f"no exit code but 0 is known of {self.containers}")
        inside = self.operator is Operator.IN
        decisive = [container for container in failed if (container.exit_code in self.values) is inside]
        subjects = [
            f"exit code {container.exit_code} of {container.name}" for container in decisive or failed
        ]
        return Finding(bool(decisive), comparison(subjects, bool(decisive) is inside, self.values))


@dataclass(frozen=True, slots=True)
class OnPodConditions:
    """Condition: conditions that the platform has set on the worker. One match is enough."""

    patterns: tuple[ConditionEvidence, ...]

    def check(self, evidence: Evidence) -> Finding:
        """Compare the conditions of the worker."""
        if not evidence.conditions:
            return Finding(False, "no condition is known of the worker")
        fitting = [
            noted for noted in evidence.conditions if {noted, replace(noted, reason=None)} & {*self.patterns}
        ]
        subjects = [f"condition {noted}" for noted in fitting or evidence.conditions]
        return Finding(bool(fitting), comparison(subjects, bool(fitting), map(str, self.patterns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnReasons:
    """
    Condition: a reason in one word, the platform's, of the worker or of a container, or the context's.

    .. seealso:: :class:`airflow_resilience.context.StateChangeReason`
    """

    reasons: frozenset[str]
    containers: ContainerScope = EVERY_CONTAINER

    def check(self, evidence: Evidence) -> Finding:
        """Look for one of the reasons."""
        classified = {f"reason {evidence.context.reason}": evidence.context.reason}
        known = shown_reasons(evidence, self.containers) | classified
        matching = [subject for subject, reason in known.items() if reason in self.reasons]
        return Finding(bool(matching), comparison(matching or known, bool(matching), self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTerminationMessage:
    """Condition: the termination messages of the containers, and the message of the worker as a whole."""

    pattern: Pattern
    """Found anywhere in the first ``SEARCHED_LENGTH`` characters."""
    containers: ContainerScope = EVERY_CONTAINER
    """With the name of a container, the message of the worker as a whole is not searched."""

    def check(self, evidence: Evidence) -> Finding:
        """Search the messages."""
        messages = [(container.name, container.message) for container in self.containers.of(evidence)]
        if self.containers.name is None:
            messages.append(("the worker", evidence.message))
        for owner, message in messages:
            searched = (message or "")[:SEARCHED_LENGTH]
            # A message often ends with a line break. Authors expect `$` to match before a line break too.
            if message and any(map(self.pattern.found_in, {searched, searched.removesuffix("\n")})):
                return Finding(True, f"the message of {owner} matches {self.pattern.text!r}")
        known = " and ".join(owner for owner, message in messages if message)
        if not known:
            return Finding(False, f"no message is known of {self.containers}")
        return Finding(False, f"the message of {known} does not match {self.pattern.text!r}")


def shown_reasons(evidence: Evidence, containers: ContainerScope = EVERY_CONTAINER) -> dict[str, str]:
    """Return the reasons that the worker and its containers show, by their names in a finding."""
    return {
        **{f"reason {reason}": reason for reason in sorted(evidence.reasons)},
        **{
            f"reason {container.reason} of {container.name}": container.reason
            for container in containers.of(evidence)
            if container.reason
        },
    }


def comparison(subjects: Collection[str], inside: bool, values: Iterable[int] | Iterable[str]) -> str:
    """Say that the subjects are, or are not, among the values."""
    verb = "is" if len(subjects) == 1 else "are"
    listed = ", ".join(map(str, sorted(values)))
    return f"{' and '.join(subjects)} {verb} {'in' if inside else 'not in'} {listed}"
