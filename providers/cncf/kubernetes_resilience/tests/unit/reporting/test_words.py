# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is read out of the sentences of decisions, which the policy engine writes here."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow.providers.cncf.kubernetes_resilience.reporting.words import (
    Budget,
    budget_of,
    cause_of,
    in_words,
    node_of,
    ran_out,
)
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import NO_POLICY, UNLIMITED, Action, Decision
from airflow_resilience.retry_policy.engine import decide
from airflow_resilience.retry_policy.evidence import Evidence, Phase
from airflow_resilience.retry_policy.infrastructure import InfrastructureBudget
from airflow_resilience.retry_policy.matchers import OnReasons
from airflow_resilience.retry_policy.rule import Policy, PolicySet, Rule
from airflow_resilience.retry_policy.selection import SelectedPolicy, Selection

from ...support.entries import lost

CONTEXT = ExecutionContext(
    StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_LOST, ContextSource.EXECUTOR
)
MATCHERS = (OnReasons(reasons=frozenset({"Evicted"})),)


def decisions(phase, limit, times, action=Action.RELAUNCH):
    """Have the engine decide about the same failure, again and again."""
    rule = Rule(name="evicted", action=action, matchers=MATCHERS)
    policy = Policy(name="standard", rules=(rule,), retry_limit=limit if phase is Phase.LAUNCH else None)
    policy_set = PolicySet(
        policies={"standard": policy},
        default="standard",
        global_max_retries=UNLIMITED,
        infrastructure=InfrastructureBudget(budget=limit),
        origin="policies.yaml",
    )
    selection = Selection(policies=(SelectedPolicy(policy, ""),))
    evidence = Evidence(phase=phase, context=CONTEXT, reasons=("Evicted",))
    made = []
    for _ in range(times):
        made.append(decide(evidence, selection, policy_set, made, lambda: 0.0))
    return made


@pytest.mark.parametrize("phase", list(Phase))
def test_relaunches_of_a_bounded_budget_until_none_is_left(phase):
    first, second, third = decisions(phase, 2, 3)
    assert [item.action for item in (first, second, third)] == ["relaunch", "relaunch", "count"]
    assert [budget_of(item) for item in (first, second, third)] == [(1, 2), (2, 2), (2, 2)]
    assert [ran_out(item) for item in (first, second, third)] == [False, False, True]


@pytest.mark.parametrize("phase", list(Phase))
def test_a_budget_without_a_limit(phase):
    assert [budget_of(item) for item in decisions(phase, UNLIMITED, 2)] == [(1, None), (2, None)]


@pytest.mark.parametrize("phase", list(Phase))
def test_what_a_rule_counts_has_not_run_out(phase):
    (decision,) = decisions(phase, 2, 1, Action.COUNT)
    assert (budget_of(decision), ran_out(decision)) == (Budget(0, 2), False)


def test_what_no_policy_has_decided_says_nothing_about_a_budget():
    decision = Decision(action=Action.RELAUNCH, policy=NO_POLICY, rule="-", explanation="the token expired")
    assert budget_of(decision) is None


def test_every_cause_has_its_sentence():
    assert {cause.name for cause in TABLE if not in_words(cause.name)} == set()
    assert in_words("of a later version") is None


def test_what_a_row_does_not_have():
    entry = lost(cause="", node=None)
    assert (cause_of(entry), node_of(entry)) == ("unknown", "unknown")
    assert (cause_of(lost()), node_of(lost())) == ("drain", "node-1")
