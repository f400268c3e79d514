# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Compiled policies in the words of the policy file. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_resilience.backoff import Backoff
from airflow_resilience.decision import UNLIMITED, Action
from airflow_resilience.retry_policy.built_in import OwnExit, ShownReasons
from airflow_resilience.retry_policy.durations import format_duration
from airflow_resilience.retry_policy.infrastructure import (
    BUDGET_OPTION,
    DELAY_OPTION,
    REASONS_OPTION,
    InfrastructureBudget,
)
from airflow_resilience.retry_policy.matchers import (
    ContainerScope,
    Matcher,
    OnCategories,
    OnContainer,
    OnExitCodes,
    OnPhases,
    OnPodConditions,
    OnReasons,
    OnTerminationMessage,
)
from airflow_resilience.retry_policy.rule import Policy, Rule, Selector
from airflow_resilience.retry_policy.selection import RETRIES_KEY

_ACTIONS = {Action.RELAUNCH: "Retry", Action.COUNT: "Count", Action.FAIL: "Fail"}


def describe_policy(policy: Policy) -> dict[str, Any]:
    """Return a policy as JSON has it."""
    return {
        "name": policy.name,
        "retryLimit": policy.retry_limit,
        RETRIES_KEY: policy.shared_limit,
        "backoff": describe_backoff(policy.backoff),
        "avoidNode": policy.avoid_node,
        "defaultAction": policy.default_action and _ACTIONS[policy.default_action],
        "rules": [describe_rule(rule) for rule in policy.rules],
    }


def describe_rule(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON has it."""
    return {
        "name": rule.name,
        "conditions": [describe_condition(matcher) for matcher in rule.matchers],
        "action": _ACTIONS[rule.action],
        "retryLimit": rule.retry_limit,
        "backoff": describe_backoff(rule.backoff),
        "avoidNode": rule.avoid_node,
        "mutate": _describe_mutation(rule),
    }


def describe_selector(selector: Selector) -> dict[str, Any]:
    """Return a selector as JSON has it, without the fields that it does not state."""
    stated = {
        "queues": sorted(selector.queues),
        "pools": sorted(selector.pools),
        "dagIds": list(selector.dag_ids),
        "dagTags": sorted(selector.dag_tags),
    }
    return {"policy": selector.policy} | {field: values for field, values in stated.items() if values}


def describe_infrastructure(infrastructure: InfrastructureBudget) -> dict[str, Any]:
    """Return the infrastructure budget as JSON has it, by the names of its options."""
    return {
        BUDGET_OPTION: infrastructure.budget,
        DELAY_OPTION: infrastructure.delay,
        REASONS_OPTION: sorted(infrastructure.reasons),
    }


def describe_limit(limit: int | None) -> str | None:
    """Return a limit in words; None if there is none of that kind."""
    if limit is None:
        return None
    return "unlimited" if limit == UNLIMITED else str(limit)


def describe_backoff(backoff: Backoff | None) -> str | None:
    """Return the delays of a backoff in one line."""
    if backoff is None:
        return None
    initial, maximum = format_duration(backoff.initial), format_duration(backoff.maximum)
    growth = f" times {backoff.multiplier:g} up to {maximum}" if backoff.multiplier > 1 else ""
    first = "at once, then " if backoff.begins_at_once else ""
    return f"{first}{initial}{growth}, jitter {backoff.jitter:g}"


def _describe_mutation(rule: Rule) -> str | None:
    if rule.mutation is None:
        return None
    after = f"after {rule.mutates_after}: " if rule.mutates_after > 1 else ""
    return f"{after}{rule.mutation}"


def describe_condition(matcher: Matcher) -> str:
    """Return a condition of a rule in one line."""
    match matcher:
        case OnPhases(phases):
            return f"phases {_listed(phase.capitalize() for phase in phases)}"
        case OnCategories(categories):
            return f"onCategories {_listed(categories)}"
        case OnContainer(name):
            return f"containerName {name}"
        case OnReasons():
            return f"onReasons {_listed(matcher.reasons)}{_of(matcher.containers)}"
        case OnExitCodes():
            values = ", ".join(map(str, sorted(matcher.values)))
            return f"onExitCodes {matcher.operator} {values}{_of(matcher.containers)}"
        case OnPodConditions(patterns):
            return f"onPodConditions {', '.join(map(str, patterns))}"
        case OnTerminationMessage():
            return f"onTerminationMessage {matcher.pattern.text!r}{_of(matcher.containers)}"
        case OwnExit():
            return "the worker container ended on its own, reason Error"
        case ShownReasons(reasons):
            return f"the pod or a container shows reason {_listed(reasons)}"
        case _:
            return str(matcher)


def _of(scope: ContainerScope) -> str:
    name = "" if scope.name is None else f" of {scope.name}"
    return name if scope.include_init else f"{name}, without init containers"


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))
