# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The policies in force, or those of one task, in the words of the policy file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console

from airflow.providers.cncf.kubernetes_resilience.cli.output import print_heading, print_names, print_table
from airflow_resilience.backoff import Backoff
from airflow_resilience.decision import UNLIMITED, Action
from airflow_resilience.retry_policy.built_in import BUILT_IN, OwnExit, ShownReasons
from airflow_resilience.retry_policy.durations import format_duration
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
from airflow_resilience.retry_policy.rule import (
    BUDGET_OPTION,
    DELAY_OPTION,
    REASONS_OPTION,
    Policy,
    PolicySet,
    Rule,
    Selector,
)
from airflow_resilience.retry_policy.selection import (
    INFRASTRUCTURE_LIMIT_KEY,
    POLICIES_KEY,
    RETRIES_KEY,
    TaskProfile,
    select,
)

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


def describe_limit(limit: int | None) -> str | None:
    """Return a limit in words; None for no limit."""
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


def _describe_task(task: TaskProfile) -> dict[str, Any]:
    return {
        "dag_id": task.dag_id,
        "task_id": task.task_id,
        "queue": task.queue,
        "pool": task.pool,
        "dag_tags": sorted(task.dag_tags),
        POLICIES_KEY: list(task.options.policies),
        RETRIES_KEY: task.options.retries,
        "problems": list(task.options.problems),
    }


def describe(policies: PolicySet, task: TaskProfile | None = None) -> dict[str, Any]:
    """
    Return the policies in force as JSON has them.

    :param task: only the policies of this task, in the order in which they are asked; None for all policies
    """
    infrastructure = policies.infrastructure
    selection = select(policies, task) if task else None
    return {
        "origin": policies.origin,
        "defaultPolicy": policies.default,
        "globalMaxRetries": policies.global_max_retries,
        "infrastructure": {
            BUDGET_OPTION: infrastructure.budget,
            DELAY_OPTION: infrastructure.delay,
            REASONS_OPTION: sorted(infrastructure.reasons),
            INFRASTRUCTURE_LIMIT_KEY: selection and selection.infrastructure_retries,
        },
        "selection": [describe_selector(selector) for selector in policies.selectors],
        "task": task and _describe_task(task),
        "unknownPolicies": list(selection.unknown) if selection else [],
        "policies": [
            {
                **describe_policy(policy),
                "why": why,
                "origin": BUILT_IN if policy.name == BUILT_IN else policies.origin,
            }
            for policy, why in (selection.policies if selection else _all(policies))
        ],
    }


def _all(policies: PolicySet) -> Iterator[tuple[Policy, str]]:
    selected = {selector.policy for selector in policies.selectors}
    for policy in sorted(policies.policies.values(), key=lambda policy: policy.name == BUILT_IN):
        if policy.name == policies.default:
            yield policy, "the default policy"
        elif policy.name in selected:
            yield policy, "for selected tasks"
        else:
            yield policy, "for tasks that ask for it"


_OF_THE_POLICY = ("retryLimit", RETRIES_KEY, "backoff", "avoidNode", "defaultAction")


def show_policies(console: Console, described: dict[str, Any]) -> None:
    """Print what :func:`describe` has returned."""
    if task := described["task"]:
        print_heading(console, f"Policies of task {task['task_id']} of Dag {task['dag_id']}")
        print_names(console, _task(task, described))
    else:
        print_heading(console, "Policies in force")
    limit = describe_limit(described["globalMaxRetries"])
    print_names(console, [("from", described["origin"]), ("globalMaxRetries", limit)])
    print_names(console, _infrastructure(described["infrastructure"]))
    if not task:
        print_table(console, [_selector(selector) for selector in described["selection"]])
    for policy in described["policies"]:
        _show_policy(console, _in_words(policy))


def _infrastructure(infrastructure: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield BUDGET_OPTION, _budget(infrastructure[BUDGET_OPTION])
    yield DELAY_OPTION, format_duration(infrastructure[DELAY_OPTION])
    yield REASONS_OPTION, ", ".join(infrastructure[REASONS_OPTION]) or "none but those of rules"


def _budget(budget: int) -> str:
    return f"{describe_limit(budget)}{'' if budget else ' (off)'}"


def _task(task: dict[str, Any], described: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield "queue", task["queue"]
    yield "pool", task["pool"]
    yield "DAG tags", ", ".join(task["dag_tags"]) or None
    yield POLICIES_KEY, ", ".join(task[POLICIES_KEY]) or None
    if task[RETRIES_KEY] is not None:
        yield RETRIES_KEY, f"{describe_limit(task[RETRIES_KEY])}, in place of the limit of a policy"
    if (budget := described["infrastructure"][INFRASTRUCTURE_LIMIT_KEY]) is not None:
        yield INFRASTRUCTURE_LIMIT_KEY, f"{_budget(budget)}, in place of {BUDGET_OPTION}"
    for name in described["unknownPolicies"]:
        yield "ignored", f"{POLICIES_KEY}: there is no policy {name}"
    for problem in task["problems"]:
        yield "ignored", problem


def _selector(described: dict[str, object]) -> dict[str, object]:
    fields = (
        f"{name}: {', '.join(values)}" for name, values in described.items() if isinstance(values, list)
    )
    return {"policy": described["policy"], "selected for": "; ".join(fields)}


def _show_policy(console: Console, described: dict[str, Any]) -> None:
    print_heading(console, f"{described['name']}: {described['why']} ({described['origin']})")
    print_names(console, ((name, described[name]) for name in _OF_THE_POLICY))
    print_table(console, [_in_words(rule) for rule in described["rules"]])


def _in_words(described: dict[str, Any]) -> dict[str, Any]:
    conditions = "\n".join(described.get("conditions", ()))
    limits = {
        name: describe_limit(described[name]) for name in ("retryLimit", RETRIES_KEY) if name in described
    }
    return described | limits | {"conditions": conditions}
