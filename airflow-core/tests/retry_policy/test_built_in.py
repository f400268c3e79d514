# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What happens without a policy file: the meaning of upstream's two options, and what is better than them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import UNLIMITED, Action, AvoidNode, BudgetUse, Decision
from airflow_resilience.retry_policy.built_in import BUILT_IN, OwnExit, ShownReasons, built_in
from airflow_resilience.retry_policy.engine import decide, trace
from airflow_resilience.retry_policy.evidence import ContainerEvidence, Evidence, Phase
from airflow_resilience.retry_policy.matchers import OnReasons
from airflow_resilience.retry_policy.rule import DEFAULT_REASONS, InfrastructureBudget, Policy, Rule
from airflow_resilience.retry_policy.selection import TaskOptions, TaskProfile, select

TASK = TaskProfile(dag_id="etl", task_id="load", queue="default", pool="p")
ERRORS = tuple(ContainerEvidence(name=name, reason="Error", exit_code=1) for name in ("base", "git-sync"))


def failure(reason: StateChangeReason = StateChangeReason.START_ERROR, **fields: Any) -> Evidence:
    context = ExecutionContext(StateChangeCategory.INFRASTRUCTURE, reason, ContextSource.EXECUTOR)
    return Evidence(**{"phase": Phase.LAUNCH, "context": context, **fields})


def own_exit(**fields: Any) -> Evidence:
    return failure(**{"containers": ERRORS, "deciding_container": "base", "exited_by_itself": True, **fields})


def ask(
    evidence: Evidence,
    *,
    retries: int = 1,
    excluded: Sequence[str] = ("Error",),
    relaunches: int = 0,
    by: str = "unavailable",
    chance: float = 0.0,
) -> Decision:
    policy_set = built_in(retries, excluded)
    history = [Decision(action=Action.RELAUNCH, policy=BUILT_IN, rule=by, explanation="")] * relaunches
    return decide(evidence, select(policy_set, TASK), policy_set, history, lambda: chance)


@pytest.mark.parametrize("reason", StateChangeReason)
def test_every_launch_failure_is_relaunched_elsewhere_if_it_can_be(reason: StateChangeReason) -> None:
    decision = ask(failure(reason))
    assert (decision.action, decision.avoid_node) == (Action.RELAUNCH, AvoidNode.PREFER)
    assert decision.explanation == f"launch 1 of 2; policy built-in, rule {decision.rule}"


@pytest.mark.parametrize(
    ("reason", "rule", "delays"),
    [
        (StateChangeReason.WORKER_TERMINATION, "disruption", [0, 10, 20, 40, 60, 60]),
        (StateChangeReason.IMAGE_UNAVAILABLE, "unavailable", [30, 60, 120, 240, 300, 300]),
        (StateChangeReason.VOLUME_UNAVAILABLE, "unavailable", [30, 60, 120, 240, 300, 300]),
        (StateChangeReason.CONFIG_UNAVAILABLE, "unavailable", [30, 60, 120, 240, 300, 300]),
        (StateChangeReason.WORKER_LOST, "launch-failure", [0, 0, 0, 2, 4, 8]),
        (StateChangeReason.UNKNOWN, "launch-failure", [0, 0, 0, 2, 4, 8]),
    ],
)
def test_only_what_has_to_be_fixed_or_comes_again_waits_before_the_fourth_relaunch(
    reason: StateChangeReason, rule: str, delays: list[float]
) -> None:
    decisions = [
        ask(failure(reason), retries=UNLIMITED, relaunches=number, by=rule) for number in range(len(delays))
    ]
    assert [decision.delay for decision in decisions] == delays
    assert {decision.rule for decision in decisions} == {rule}


@pytest.mark.parametrize(
    ("word", "action", "rule", "delay"),
    [
        ("QuotaExceeded", Action.RELAUNCH, "unavailable", 30),
        ("CreationConflict", Action.RELAUNCH, "launch-failure", 0),
        ("CreationForbidden", Action.COUNT, "refused", 0),
        ("PublishRetriesUsed", Action.COUNT, "refused", 0),
    ],
)
def test_what_was_never_created_is_relaunched_unless_it_is_refused_for_good(
    word: str, action: Action, rule: str, delay: float
) -> None:
    decision = ask(failure(reasons=(word, "QuotaExceeded") if word == "PublishRetriesUsed" else (word,)))
    assert (decision.action, decision.rule, decision.delay) == (action, rule, delay)


@pytest.mark.parametrize("word", ["PreemptionByScheduler", "Preempting"])
def test_first_relaunch_after_a_preemption_waits_for_the_node(word: str) -> None:
    """The only one by default is not used up while pods of DaemonSets are still placed on a new node."""
    preempted = failure(StateChangeReason.WORKER_TERMINATION, reasons=(word,))
    decisions = [ask(preempted, retries=UNLIMITED, relaunches=number, by="preemption") for number in range(3)]
    assert [(decision.rule, decision.delay) for decision in decisions] == [
        ("preemption", 10),
        ("preemption", 20),
        ("preemption", 40),
    ]


def test_wait_is_spread_by_a_fifth() -> None:
    evidence = failure(StateChangeReason.IMAGE_UNAVAILABLE)
    assert ask(evidence, chance=0.5).delay == pytest.approx(27)


@pytest.mark.parametrize(
    ("retries", "relaunches", "action", "explanation"),
    [
        (0, 0, Action.COUNT, "launch 1 of 1; no relaunch is left; policy built-in: retried 0 of 0 times"),
        (1, 0, Action.RELAUNCH, "launch 1 of 2; policy built-in, rule launch-failure"),
        (1, 1, Action.COUNT, "launch 2 of 2; no relaunch is left; policy built-in: retried 1 of 1 times"),
        (3, 2, Action.RELAUNCH, "launch 3 of 4; policy built-in, rule launch-failure"),
        (UNLIMITED, 500, Action.RELAUNCH, "launch 501 of unlimited; policy built-in, rule launch-failure"),
    ],
)
def test_limit(retries: int, relaunches: int, action: Action, explanation: str) -> None:
    decision = ask(failure(), retries=retries, relaunches=relaunches)
    assert (decision.action, decision.rule, decision.explanation) == (action, "launch-failure", explanation)


def test_own_exit_with_an_excluded_reason_is_the_task_own_affair() -> None:
    decision = ask(own_exit())
    assert (decision.action, decision.rule) == (Action.COUNT, "excluded")
    assert decision.explanation.startswith("launch 1 of 2; the worker's own exit is not relaunched;")


@pytest.mark.parametrize(
    ("evidence", "excluded"),
    [
        (own_exit(exited_by_itself=False), ["Error"]),
        (own_exit(exited_by_itself=False, deciding_container="git-sync"), ["Error"]),
        (own_exit(), ["OOMKilled"]),
        (own_exit(), []),
        (own_exit(containers=()), ["Error"]),
        (own_exit(containers=(ContainerEvidence(name="base"),)), ["Error"]),
        (own_exit(deciding_container=None), ["Error"]),
    ],
)
def test_anything_else_is_relaunched(evidence: Evidence, excluded: list[str]) -> None:
    assert ask(evidence, excluded=excluded).action is Action.RELAUNCH


@pytest.mark.parametrize(
    ("evidence", "finding"),
    [
        (own_exit(), (True, "the worker's main container ended on its own, reason Error")),
        (
            own_exit(containers=()),
            (False, "the worker's main container ended on its own, reason unknown, which is not Error"),
        ),
        (failure(), (False, "the worker's main container did not end on its own")),
    ],
)
def test_own_exit_is_explained(evidence: Evidence, finding: tuple[bool, str]) -> None:
    assert OwnExit().check(evidence) == finding


INIT = ContainerEvidence(name="git-sync", is_init=True, reason="OOMKilled", exit_code=137)
PULL = ContainerEvidence(name="base", reason="ErrImagePull")


@pytest.mark.parametrize(
    ("evidence", "reason", "subject"),
    [
        (failure(containers=(INIT,), deciding_container="git-sync"), "OOMKilled", "OOMKilled of git-sync"),
        (failure(containers=(PULL, INIT)), "ErrImagePull", "ErrImagePull of base"),
        (failure(reasons=("Evicted",)), "Evicted", "Evicted"),
        (
            own_exit(
                containers=(ContainerEvidence(name="base", reason="OOMKilled"),), exited_by_itself=False
            ),
            "OOMKilled",
            "OOMKilled of base",
        ),
    ],
)
def test_reason_that_is_listed_excludes_wherever_it_is_shown(
    evidence: Evidence, reason: str, subject: str
) -> None:
    decision = ask(evidence, excluded=["Error", reason])
    assert (decision.action, decision.rule) == (Action.COUNT, "excluded-reason")
    assert decision.explanation.startswith("launch 1 of 2; its reason is excluded from relaunches;")
    assert ask(evidence).action is Action.RELAUNCH
    finding = ShownReasons(frozenset({reason})).check(evidence)
    assert finding == (True, f"reason {subject} is in {reason}")


def test_error_excludes_nothing_but_the_own_exit_of_the_worker() -> None:
    sidecar = ContainerEvidence(name="proxy", reason="Error", exit_code=1)
    evidence = failure(containers=(sidecar, INIT), deciding_container="proxy", reasons=("Error",))
    assert ask(evidence, excluded=["Error", "Evicted"]).action is Action.RELAUNCH


def test_classified_reason_is_not_one_that_is_shown() -> None:
    assert ask(failure(), excluded=["START_ERROR"]).action is Action.RELAUNCH
    assert ShownReasons(frozenset({"START_ERROR"})).check(failure()) == (False, "the worker shows no reason")


@pytest.mark.parametrize("category", StateChangeCategory)
@pytest.mark.parametrize("reason", StateChangeReason)
def test_running_task_is_launched_again_after_these_losses_to_the_infrastructure(
    category: StateChangeCategory, reason: StateChangeReason
) -> None:
    policy_set = built_in(0, (), InfrastructureBudget(budget=1))
    evidence = Evidence(
        phase=Phase.EXECUTION, context=ExecutionContext(category, reason, ContextSource.EXECUTOR)
    )
    decision = decide(evidence, select(policy_set, TASK), policy_set, [], lambda: 0.5)
    if category is StateChangeCategory.INFRASTRUCTURE and reason in {
        StateChangeReason.WORKER_TERMINATION,
        StateChangeReason.WORKER_LOST,
        StateChangeReason.RESOURCE_EXHAUSTION,
        StateChangeReason.DB_CONNECTION_ERROR,
    }:
        assert decision == Decision(
            action=Action.RELAUNCH,
            policy="infrastructure",
            rule="infrastructure",
            explanation="infrastructure retry 1 of 1; policy infrastructure, rule infrastructure",
            budget=BudgetUse(1, 1),
            delay=10.0,
            avoid_node=AvoidNode.PREFER,
        )
    else:
        assert (decision.action, decision.rule) == (Action.COUNT, "defaultAction")


def test_configured_reasons_and_delay_of_running_tasks() -> None:
    reasons = frozenset({StateChangeReason.START_ERROR})
    policy_set = built_in(0, (), InfrastructureBudget(budget=UNLIMITED, delay=3.0, reasons=reasons))
    decisions = [
        decide(failure(reason, phase=Phase.EXECUTION), select(policy_set, TASK), policy_set, [], lambda: 0.0)
        for reason in (StateChangeReason.START_ERROR, StateChangeReason.WORKER_LOST)
    ]
    assert [(decision.action, decision.delay) for decision in decisions] == [
        (Action.RELAUNCH, 3.0),
        (Action.COUNT, 0.0),
    ]
    assert decisions[0].explanation.startswith("infrastructure retry 1 of unlimited; ")


def test_without_reasons_only_rules_launch_a_running_task_again() -> None:
    policy_set = built_in(0, (), InfrastructureBudget(budget=1, reasons=frozenset()))
    found = trace(
        failure(StateChangeReason.WORKER_LOST, phase=Phase.EXECUTION),
        select(policy_set, TASK),
        policy_set,
        [],
        lambda: 0.0,
    )
    assert found.decision.action is Action.COUNT
    assert "infrastructure" not in {step.rule for step in found.steps}


# ------------------------------------------------------------------ a worker that could not reach Airflow


def ask_about_launch(
    *policies: Policy,
    budget: int = 2,
    reasons: frozenset[StateChangeReason] = DEFAULT_REASONS,
    history: Sequence[Decision] = (),
    retries: int | None = None,
    excluded: Sequence[str] = ("Error",),
    reason: StateChangeReason = StateChangeReason.DB_CONNECTION_ERROR,
) -> Decision:
    policy_set = built_in(1, excluded, InfrastructureBudget(budget=budget, reasons=reasons))
    for policy in policies:
        policy_set = replace(
            policy_set, policies={**policy_set.policies, policy.name: policy}, default=policy.name
        )
    task = select(policy_set, replace(TASK, options=TaskOptions(retries=retries)))
    return decide(own_exit(context=failure(reason).context), task, policy_set, history, lambda: 0.0)


UNREACHABLE = ask_about_launch()
RELAUNCHED = ask_about_launch(reason=StateChangeReason.START_ERROR, excluded=())


def test_the_infrastructure_budget_bears_what_could_not_reach_airflow() -> None:
    assert (
        Decision(
            action=Action.RELAUNCH,
            policy="infrastructure",
            rule="airflow-api-unreachable",
            explanation="launch 1 of 3; policy infrastructure, rule airflow-api-unreachable",
            budget=BudgetUse(1, 2),
            delay=10.0,
            avoid_node=AvoidNode.PREFER,
        )
        == UNREACHABLE
    )


def test_a_worker_could_not_reach_airflow_once_more_than_the_budget_has() -> None:
    decision = ask_about_launch(history=[UNREACHABLE] * 2, excluded=())
    assert (decision.action, decision.ran_out) == (Action.COUNT, True)
    assert decision.explanation.endswith("infrastructure_retry_budget: retried 2 of 2 times")


@pytest.mark.parametrize("retries", [None, 1])
def test_what_the_budget_bears_and_other_launches_take_nothing_of_each_other(retries: int | None) -> None:
    both = {"history": [RELAUNCHED, UNREACHABLE], "retries": retries}
    assert ask_about_launch(**both).explanation.startswith("launch 3 of 4; ")
    other = {"reason": StateChangeReason.START_ERROR, "excluded": (), "retries": retries}
    assert ask_about_launch(history=[UNREACHABLE] * 2, **other).action is Action.RELAUNCH
    assert ask_about_launch(history=[UNREACHABLE, RELAUNCHED], **other).action is Action.COUNT


@pytest.mark.parametrize("options", [{"budget": 0}, {"reasons": frozenset({StateChangeReason.WORKER_LOST})}])
@pytest.mark.parametrize(("excluded", "action"), [(["Error"], Action.COUNT), ([], Action.RELAUNCH)])
def test_what_the_budget_does_not_bear_is_decided_as_any_launch(
    options: dict[str, Any], excluded: list[str], action: Action
) -> None:
    decision = ask_about_launch(**options, excluded=excluded)
    assert (decision.action, decision.policy) == (action, BUILT_IN)


@pytest.mark.parametrize("action", [Action.COUNT, Action.FAIL, Action.RELAUNCH])
def test_a_default_action_comes_before_the_budget(action: Action) -> None:
    decision = ask_about_launch(Policy(name="mine", rules=(), default_action=action))
    assert (decision.action, decision.policy) == (action, "mine")


def test_a_policy_that_says_nothing_about_it_leaves_it_to_the_budget() -> None:
    evicted = Rule(name="r", action=Action.FAIL, matchers=(OnReasons(reasons=frozenset({"Evicted"})),))
    assert ask_about_launch(Policy(name="mine", rules=(evicted,))) == UNREACHABLE
    start_error = ask_about_launch(
        Policy(name="mine", rules=(evicted,)), reason=StateChangeReason.START_ERROR
    )
    assert (start_error.policy, start_error.rule) == ("mine", "defaultAction")
