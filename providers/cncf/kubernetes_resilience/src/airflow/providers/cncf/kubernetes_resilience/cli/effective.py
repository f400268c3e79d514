# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The policies in force, or those of one task, and where each comes from. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow.providers.cncf.kubernetes_resilience.cli.description import (
    describe_infrastructure,
    describe_policy,
    describe_selector,
)
from airflow_resilience.retry_policy.built_in import BUILT_IN
from airflow_resilience.retry_policy.rule import Policy, PolicySet
from airflow_resilience.retry_policy.selection import (
    INFRASTRUCTURE_LIMIT_KEY,
    POLICIES_KEY,
    RETRIES_KEY,
    TaskProfile,
    select,
)


class DefinedTask(NamedTuple):
    """A task, and the problems of its ``executor_config``."""

    profile: TaskProfile
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the task as JSON has it."""
        profile = self.profile
        return {
            "dag_id": profile.dag_id,
            "task_id": profile.task_id,
            "queue": profile.queue,
            "pool": profile.pool,
            "dag_tags": sorted(profile.dag_tags),
            POLICIES_KEY: list(profile.policies),
            RETRIES_KEY: profile.retries,
            "problems": list(self.problems),
        }


class PolicyInForce(NamedTuple):
    """A policy, and why it applies."""

    policy: Policy
    why: str
    origin: str
    """The file that it stands in, or ``built-in``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as JSON has it."""
        return {**describe_policy(self.policy), "why": self.why, "origin": self.origin}


@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """What is in force."""

    policies: PolicySet
    task: DefinedTask | None = None
    """The task in question; None for all tasks."""

    @property
    def chain(self) -> list[PolicyInForce]:
        """The task's policies, in the order in which they are asked; without a task, all policies."""
        return [
            PolicyInForce(policy, why, BUILT_IN if policy.name == BUILT_IN else self.policies.origin)
            for policy, why in self._chosen()
        ]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names that the task asks for, but no policy has."""
        return select(self.policies, self.task.profile).unknown if self.task else ()

    @property
    def task_budget(self) -> int | None:
        """The task's infrastructure budget in place of the configured one; None if it asks for no other."""
        return select(self.policies, self.task.profile).infrastructure_retries if self.task else None

    def _chosen(self) -> Iterator[tuple[Policy, str]]:
        if self.task:
            yield from select(self.policies, self.task.profile).policies
            return
        selected = {selector.policy for selector in self.policies.selectors}
        for policy in sorted(self.policies.policies.values(), key=lambda policy: policy.name == BUILT_IN):
            if policy.name == self.policies.default:
                yield policy, "the default policy"
            elif policy.name in selected:
                yield policy, "for selected tasks"
            else:
                yield policy, "for tasks that ask for it"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        policies = self.policies
        return {
            "origin": policies.origin,
            "defaultPolicy": policies.default,
            "globalMaxRetries": policies.global_max_retries,
            "infrastructure": {
                **describe_infrastructure(policies.infrastructure),
                INFRASTRUCTURE_LIMIT_KEY: self.task_budget,
            },
            "selection": [describe_selector(selector) for selector in policies.selectors],
            "task": self.task and self.task.to_dict(),
            "unknownPolicies": list(self.unknown),
            "policies": [item.to_dict() for item in self.chain],
        }
