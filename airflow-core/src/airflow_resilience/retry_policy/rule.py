# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A compiled policy file: rules, policies, and which tasks they are for. Data only; see ``engine``."""

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
"""Name of the policy that is asked last about a running task, and of its rule about that."""
BUDGET_OPTION: Final = "infrastructure_retry_budget"
"""The option that holds the budget of every task that asks for no other."""
DELAY_OPTION: Final = "infrastructure_retry_delay"
REASONS_OPTION: Final = "infrastructure_retry_reasons"
DEFAULT_TASK_BUDGET: Final = 3
"""The budget of a task that switches infrastructure retries on where they are off, and states no limit."""
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
    """How often, and after what, a running task is launched again in the same try."""

    budget: int
    """Infrastructure retries for each try; 0 for none, ``UNLIMITED`` for no limit."""
    delay: float = 10.0
    """Seconds before each of them, where no policy has a backoff for it."""
    reasons: frozenset[StateChangeReason] = DEFAULT_REASONS
    """Of category INFRASTRUCTURE: what no rule of a policy has to be about. Empty leaves all to the rules."""


OFF: Final = InfrastructureBudget(budget=0)
"""No running task is launched again unless it asks for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What to do about failures that meet all of its conditions."""

    name: str
    """Unique in its policy. Relaunches are counted by this name."""
    action: Action
    matchers: tuple[Matcher, ...]
    """Its conditions; without any it applies to every failure."""
    retry_limit: int | None = None
    """Relaunches by it for one try; ``UNLIMITED`` for no limit but the set's, None for its policy's."""
    backoff: Backoff | None = None
    """None for its policy's."""
    avoid_node: AvoidNode | None = None
    """None for its policy's."""
    mutation: Mutation | None = None
    """What it changes in the launch that follows; None for nothing."""
    mutates_after: int = 1
    """From which of its relaunches for one try it changes that, counted from 1."""
    note: str = ""
    """A clause for the explanation, if the rule's name does not say enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules, in the order in which they are tried, and what holds for all of them."""

    name: str
    rules: tuple[Rule, ...]
    default_action: Action | None = None
    """For failed launches that none of its rules matches; None leaves those to the next policy. It says
    nothing about running tasks: only a rule, or the infrastructure budget, launches one of them again."""
    retry_limit: int | None = None
    """Relaunches for one try by a rule without a limit of its own. Each rule is counted by itself.
    ``UNLIMITED`` or None: no limit but the set's."""
    shared_limit: int | None = None
    """Relaunches for one try by all of its rules together; None for no such limit. Of the built-in policy."""
    backoff: Backoff | None = None
    """None relaunches at once."""
    avoid_node: AvoidNode = AvoidNode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Selects tasks for a policy. Every field that is stated (not empty) has to match."""

    policy: str
    queues: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    dag_ids: tuple[str, ...] = ()
    """Patterns of :mod:`fnmatch`, case-sensitive."""
    dag_tags: frozenset[str] = frozenset()
    """One of them is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """Everything that is in force at one time."""

    policies: Mapping[str, Policy]
    """By name."""
    default: str
    """Name of the policy that every task has, after all others."""
    global_max_retries: int
    """Relaunches for one try, whatever the policies say; ``UNLIMITED`` for no limit. Failed launches and
    losses of the running task are counted apart."""
    infrastructure: InfrastructureBudget = OFF
    """Of running tasks. It is configured, and no file can change it."""
    selectors: tuple[Selector, ...] = ()
    origin: str
    """Where it comes from, for people: a file's path, or ``built-in``."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """Of the policy file: a line each, with the place in the file."""

    def __post_init__(self) -> None:
        """
        Refuse names that no policy has. Otherwise the first failure would find out.

        :raises ValueError: naming them
        """
        named = {self.default, *(selector.policy for selector in self.selectors)}
        if missing := sorted(named - self.policies.keys()):
            raise ValueError(f"no such policy: {', '.join(missing)}")

    @property
    def default_policy(self) -> Policy:
        """The policy that every task has."""
        return self.policies[self.default]
