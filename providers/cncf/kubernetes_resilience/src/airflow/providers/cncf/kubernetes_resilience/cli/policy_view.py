# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Policies, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from airflow.providers.cncf.kubernetes_resilience.cli.description import (
    describe_limit,
    describe_policy,
    describe_selector,
)
from airflow.providers.cncf.kubernetes_resilience.cli.effective import (
    DefinedTask,
    EffectivePolicies,
    PolicyInForce,
)
from airflow.providers.cncf.kubernetes_resilience.cli.output import print_heading, print_names, print_table
from airflow_resilience.retry_policy.durations import format_duration
from airflow_resilience.retry_policy.infrastructure import (
    BUDGET_OPTION,
    DELAY_OPTION,
    REASONS_OPTION,
    InfrastructureBudget,
)
from airflow_resilience.retry_policy.selection import INFRASTRUCTURE_LIMIT_KEY, POLICIES_KEY, RETRIES_KEY

_OF_THE_POLICY = ("retryLimit", RETRIES_KEY, "backoff", "avoidNode", "defaultAction")


def show_policies(console: Console, effective: EffectivePolicies) -> None:
    """Print the policies in the order in which they are asked."""
    policies, task = effective.policies, effective.task
    if task:
        print_heading(console, f"Policies of task {task.profile.task_id} of Dag {task.profile.dag_id}")
        print_names(console, _task(task, effective))
    else:
        print_heading(console, "Policies in force")
    limit = describe_limit(policies.global_max_retries)
    print_names(console, [("from", policies.origin), ("globalMaxRetries", limit)])
    print_names(console, _infrastructure(policies.infrastructure))
    if not task:
        print_table(console, [_selector(describe_selector(selector)) for selector in policies.selectors])
    for item in effective.chain:
        _show_policy(console, item)


def _infrastructure(infrastructure: InfrastructureBudget) -> Iterator[tuple[str, object]]:
    yield BUDGET_OPTION, _budget(infrastructure.budget)
    yield DELAY_OPTION, format_duration(infrastructure.delay)
    yield REASONS_OPTION, ", ".join(sorted(infrastructure.reasons)) or "none but those of rules"


def _budget(budget: int) -> str:
    return f"{describe_limit(budget)}{'' if budget else ' (off)'}"


def _task(task: DefinedTask, effective: EffectivePolicies) -> Iterator[tuple[str, object]]:
    profile = task.profile
    yield "queue", profile.queue
    yield "pool", profile.pool
    yield "DAG tags", ", ".join(sorted(profile.dag_tags)) or None
    yield POLICIES_KEY, ", ".join(profile.policies) or None
    if profile.retries is not None:
        yield RETRIES_KEY, f"{describe_limit(profile.retries)}, in place of the limit of a policy"
    if effective.task_budget is not None:
        yield INFRASTRUCTURE_LIMIT_KEY, f"{_budget(effective.task_budget)}, in place of {BUDGET_OPTION}"
    for name in effective.unknown:
        yield "ignored", f"{POLICIES_KEY}: there is no policy {name}"
    for problem in task.problems:
        yield "ignored", problem


def _selector(described: dict[str, object]) -> dict[str, object]:
    fields = (
        f"{name}: {', '.join(values)}" for name, values in described.items() if isinstance(values, list)
    )
    return {"policy": described["policy"], "selected for": "; ".join(fields)}


def _show_policy(console: Console, item: PolicyInForce) -> None:
    described = _in_words(describe_policy(item.policy))
    print_heading(console, f"{item.policy.name}: {item.why} ({item.origin})")
    print_names(console, ((name, described[name]) for name in _OF_THE_POLICY))
    print_table(console, [_in_words(rule) for rule in described["rules"]])


def _in_words(described: dict[str, Any]) -> dict[str, Any]:
    conditions = "\n".join(described.get("conditions", ()))
    limits = {
        name: describe_limit(described[name]) for name in ("retryLimit", RETRIES_KEY) if name in described
    }
    return described | limits | {"conditions": conditions}
