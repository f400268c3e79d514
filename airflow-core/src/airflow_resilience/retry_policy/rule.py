# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A compiled policy file: rules, policies and selectors. Data only; see ``engine``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from airflow_resilience.backoff import Backoff
from airflow_resilience.context import StateChangeReason
from airflow_resilience.decision import Action, AvoidNode
from airflow_resilience.mutation import Mutation
from airflow_resilience.retry_policy.matchers import Matcher

INFRASTRUCTURE: Final = "infrastructure"
"""Name of the policy that is asked last about a running task, and of its rule for running tasks."""
BUDGET_OPTION: Final = "infrastructure_retry_budget"
"""Name of the option with the budget of every task that asks for no other."""
DELAY_OPTION: Final = "infrastructure_retry_delay"
REASONS_OPTION: Final = "infrastructure_retry_reasons"
DEFAULT_TASK_BUDGET: Final = 3
"""Budget of a task that switches on infrastructure retries without a limit, where the option is 0."""
DEFAULT_REASONS: Final = frozenset(
    {
        StateChangeReason.WORKER_TERMINATION,
        StateChangeReason.WORKER_LOST,
        StateChangeReason.RESOURCE_EXHAUSTION,
        StateChangeReason.DB_CONNECTION_ERROR,
    }
)
"""Those of AIP-97."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureBudget:
    """Limits of the relaunches of running tasks in the same try."""

    budget: int
    """Infrastructure retries for each try; 0 for none, ``UNLIMITED`` for no limit."""
    delay: float = 10.0
    """Seconds before each of them, where no policy has a backoff for it."""
    reasons: frozenset[StateChangeReason] = DEFAULT_REASONS
    """Of category INFRASTRUCTURE: reasons that need no rule of a policy. Empty: only rules cause
    relaunches."""


OFF: Final = InfrastructureBudget(budget=0)
"""No running task is launched again, unless its author asks for relaunches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An action for failures that meet all conditions of the rule."""

    name: str
    """Unique in its policy. Relaunches are counted by this name."""
    action: Action
    matchers: tuple[Matcher, ...]
    """Conditions; a rule without conditions applies to every failure."""
    retry_limit: int | None = None
    """Relaunches by the rule for one try; ``UNLIMITED`` for no limit but the set's, None for its policy's."""
    backoff: Backoff | None = None
    """None for its policy's."""
    avoid_node: AvoidNode | None = None
    """None for its policy's."""
    mutation: Mutation | None = None
    """Changes of the next launch; None for no changes."""
    mutates_after: int = 1
    """Number of the rule's first relaunch for one try with changes, from 1."""
    note: str = ""
    """A clause for the explanation, if the rule's name does not say enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules in their order, and settings for all of them."""

    name: str
    rules: tuple[Rule, ...]
    default_action: Action | None = None
    """For failed launches that no rule matches; None for the decision of the next policy. Not for running
    tasks: only a rule, or the infrastructure budget, launches a running task again."""
    retry_limit: int | None = None
    """Relaunches for one try by a rule without a limit of its own, counted for each rule. ``UNLIMITED`` or
    None: no limit but the set's."""
    shared_limit: int | None = None
    """Relaunches for one try by all of its rules together; None for no such limit. Of the built-in policy."""
    backoff: Backoff | None = None
    """None for an immediate relaunch."""
    avoid_node: AvoidNode = AvoidNode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Selects tasks for a policy. Every stated (not empty) field has to match."""

    policy: str
    queues: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    dag_ids: tuple[str, ...] = ()
    """Patterns of :mod:`fnmatch`, case-sensitive."""
    dag_tags: frozenset[str] = frozenset()
    """One tag is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """All policies and limits in force."""

    policies: Mapping[str, Policy]
    """By name."""
    default: str
    """Name of the policy that every task has, after all others."""
    global_max_retries: int
    """Relaunches for one try, above all limits of policies; ``UNLIMITED`` for no limit. Failed launches and
    losses of the running task are counted apart."""
    infrastructure: InfrastructureBudget = OFF
    """Budget of running tasks, from the configuration. No policy file can change the budget."""
    selectors: tuple[Selector, ...] = ()
    origin: str
    """Origin for people: a file's path, or ``built-in``."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """Of the policy file: a line each, with the place in the file."""

    def __post_init__(self) -> None:
        """
        Refuse unknown names of policies, which would otherwise show at the first failure.

        :raises ValueError: with the unknown names
        """
        named = {self.default, *(selector.policy for selector in self.selectors)}
        if missing := sorted(named - self.policies.keys()):
            raise ValueError(f"no such policy: {', '.join(missing)}")

    @property
    def default_policy(self) -> Policy:
        """The policy that every task has."""
        return self.policies[self.default]
