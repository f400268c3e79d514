# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Selects the policies that are asked about a task's failures, in their order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from reprlib import repr as short_repr
from typing import Any, Final, NamedTuple

from airflow_resilience.decision import UNLIMITED
from airflow_resilience.retry_policy.rule import (
    DEFAULT_TASK_BUDGET,
    InfrastructureBudget,
    Policy,
    PolicySet,
    Selector,
)

POLICIES_KEY: Final = "retry_policies"
"""Key of ``executor_config``: names of policies."""
RETRIES_KEY: Final = "pod_launch_failure_retries"
"""Key of ``executor_config``: relaunches for one try by all rules, instead of the policy's limit."""
INFRASTRUCTURE_ENABLED_KEY: Final = "infrastructure_retry_enabled"
"""Key of ``executor_config``: whether the task runs again after infrastructure has taken its worker."""
INFRASTRUCTURE_LIMIT_KEY: Final = "infrastructure_retry_limit"
"""Key of ``executor_config``: infrastructure retries for each try, instead of the configured budget."""
INFRASTRUCTURE_KEYS: Final = frozenset({INFRASTRUCTURE_ENABLED_KEY, INFRASTRUCTURE_LIMIT_KEY})
LARGEST_LIMIT: Final = 1_000_000
"""More than any try can have. Python refuses to print whole numbers of some thousand digits."""


class TaskOptions(NamedTuple):
    """Options of a task in ``executor_config``."""

    policies: tuple[str, ...] = ()
    """Names of policies."""
    retries: int | None = None
    """Limit of all relaunches of a try; ``UNLIMITED`` for no limit, None for the policy's."""
    problems: tuple[str, ...] = ()
    """Sentences about ignored values."""
    infrastructure_retries: int | None = None
    """Infrastructure budget for each try; 0 for none, ``UNLIMITED`` for no limit, None for the configured
    one."""
    wants_infrastructure_retries: bool = False
    """Whether infrastructure retries are switched on without a limit."""


NO_OPTIONS: Final = TaskOptions()
"""Of a task without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProfile:
    """Properties of a task on which the selection of its policies depends."""

    dag_id: str
    task_id: str
    queue: str
    pool: str
    dag_tags: frozenset[str] = frozenset()
    options: TaskOptions = NO_OPTIONS


class SelectedPolicy(NamedTuple):
    """A policy, and the reason of its selection."""

    policy: Policy
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The policies of one task, the default one among them, in the order in which they are asked."""

    policies: tuple[SelectedPolicy, ...]
    retries: int | None = None
    """The task's limit of all relaunches, which replaces a policy's limit; None for no such limit."""
    infrastructure_retries: int | None = None
    """The task's infrastructure budget, which replaces the configured one; None for the configured one."""
    unknown: tuple[str, ...] = ()
    """Unknown names of policies in the task's options."""


def select(policy_set: PolicySet, profile: TaskProfile) -> Selection:
    """
    Choose the policies for a task, each once: selected ones, those of the task's options, the default one.

    An unknown name is ignored and reported: a policy file may change while tasks run.
    """
    known = policy_set.policies
    chosen: dict[str, str] = {}
    for selector in policy_set.selectors:
        if why := _why_selected(selector, profile):
            chosen.setdefault(selector.policy, why)
    options = profile.options
    for name in options.policies:
        if name in known:
            chosen.setdefault(name, "the task asks for it")
    chosen.setdefault(policy_set.default, "the default policy")
    return Selection(
        policies=tuple(SelectedPolicy(known[name], why) for name, why in chosen.items()),
        retries=options.retries,
        infrastructure_retries=_infrastructure_retries(policy_set.infrastructure, options),
        unknown=tuple(name for name in dict.fromkeys(options.policies) if name not in known),
    )


def infrastructure_budget(options: TaskOptions, configured: InfrastructureBudget) -> int:
    """Return the number of relaunches after losses for each try of a task; ``UNLIMITED`` for no limit."""
    own = _infrastructure_retries(configured, options)
    return configured.budget if own is None else own


def _infrastructure_retries(configured: InfrastructureBudget, options: TaskOptions) -> int | None:
    if options.infrastructure_retries is None and options.wants_infrastructure_retries:
        return None if configured.budget else DEFAULT_TASK_BUDGET
    return options.infrastructure_retries


def _why_selected(selector: Selector, profile: TaskProfile) -> str | None:
    """Return the match of each stated field in the task; None if a field does not match."""
    patterns = [pattern for pattern in selector.dag_ids if fnmatchcase(profile.dag_id, pattern)]
    fields: tuple[tuple[str, Collection[str], Collection[str]], ...] = (
        ("queue", selector.queues, selector.queues & {profile.queue}),
        ("pool", selector.pools, selector.pools & {profile.pool}),
        ("DAG id", selector.dag_ids, patterns),
        ("DAG tag", selector.dag_tags, selector.dag_tags & profile.dag_tags),
    )
    if not all(found for _, stated, found in fields if stated):
        return None
    return "selected by " + " and ".join(f"{word} {min(found)}" for word, _, found in fields if found)


def read_task_options(executor_config: object) -> TaskOptions:
    """
    Read the options of a task in ``executor_config``.

    An invalid value is ignored and reported. A typing error in one task must not stop the scheduler, nor pass
    unnoticed.
    """
    if executor_config is None:
        return NO_OPTIONS
    if not isinstance(executor_config, dict):
        return TaskOptions(problems=(_problem("executor_config", executor_config, "a dictionary"),))
    policies, bad_policies = _read_policies(executor_config.get(POLICIES_KEY))
    retries, bad_retries = _read_limit(executor_config, RETRIES_KEY)
    enabled, bad_switch = _read_switch(executor_config, INFRASTRUCTURE_ENABLED_KEY)
    limit, bad_limit = _read_limit(executor_config, INFRASTRUCTURE_LIMIT_KEY)
    return TaskOptions(
        policies=policies,
        retries=retries,
        infrastructure_retries=0 if enabled is False else limit,
        wants_infrastructure_retries=enabled is True,
        problems=(*bad_policies, *bad_retries, *bad_switch, *bad_limit),
    )


def _read_policies(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if value is None:
        return (), ()
    if not isinstance(value, list | tuple):
        return (), (_problem(POLICIES_KEY, value, "a list of names"),)
    return (
        tuple(name for name in value if isinstance(name, str)),
        tuple(_problem(POLICIES_KEY, name, "names only") for name in value if not isinstance(name, str)),
    )


def _read_switch(config: dict[Any, Any], key: str) -> tuple[bool | None, tuple[str, ...]]:
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value, ()
    return None, (_problem(key, value, "True, False"),)


def _read_limit(config: dict[Any, Any], key: str) -> tuple[int | None, tuple[str, ...]]:
    value = config.get(key)
    # In Python, True is an int, but not meant as a number.
    if value is None:
        return None, ()
    if isinstance(value, int) and not isinstance(value, bool) and UNLIMITED <= value <= LARGEST_LIMIT:
        return value, ()
    return None, (_problem(key, value, f"a whole number from -1 (no limit) to {LARGEST_LIMIT}"),)


def _problem(key: str, value: object, allowed: str) -> str:
    try:
        got = short_repr(value)
    except ValueError:  # an integer of more digits than Python converts
        got = "a number that is too long to be shown"
    return f"{key}: got {got}; allowed: {allowed}"
