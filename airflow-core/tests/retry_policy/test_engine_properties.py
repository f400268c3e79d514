# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What holds for every policy and every failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.backoff import Backoff
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import UNLIMITED, Action, AvoidNode, Decision
from airflow_resilience.mutation import Mutation
from airflow_resilience.retry_policy.built_in import OwnExit, ShownReasons, infrastructure_policy
from airflow_resilience.retry_policy.engine import decide, minimum_delay, trace
from airflow_resilience.retry_policy.evidence import ConditionEvidence, ContainerEvidence, Evidence, Phase
from airflow_resilience.retry_policy.matchers import (
    ContainerScope,
    OnCategories,
    OnContainer,
    OnExitCodes,
    OnPhases,
    OnPodConditions,
    OnReasons,
    OnTerminationMessage,
    Operator,
)
from airflow_resilience.retry_policy.patterns import Pattern
from airflow_resilience.retry_policy.rule import InfrastructureBudget, Policy, PolicySet, Rule, Selector
from airflow_resilience.retry_policy.selection import (
    SelectedPolicy,
    Selection,
    TaskOptions,
    TaskProfile,
    select,
)

# Few words, so that what is asked for is often there.
names = st.sampled_from(["base", "git-sync", "vault"])
reasons = st.sampled_from(["Error", "Evicted", "OOMKilled", "WORKER_LOST"])
texts = st.none() | st.sampled_from(["", "no space left", "killed"]) | st.text(max_size=20)
codes = st.sampled_from([1, 2, 137, 143, 255])
chances = st.floats(min_value=0, max_value=1, exclude_max=True)


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.frozensets(values, min_size=1, max_size=3)


evidences = st.builds(
    Evidence,
    phase=st.sampled_from(Phase),
    context=st.builds(
        ExecutionContext,
        st.sampled_from(StateChangeCategory),
        st.sampled_from(StateChangeReason),
        st.sampled_from(ContextSource),
    ),
    reasons=st.lists(reasons, max_size=2) | st.frozensets(st.text(max_size=5), max_size=2),
    message=texts,
    containers=st.lists(
        st.builds(
            ContainerEvidence,
            name=names,
            is_init=st.booleans(),
            exit_code=st.none() | codes | st.integers(),
            reason=st.none() | reasons | texts,
            message=texts,
        ),
        max_size=3,
    ).map(tuple),
    deciding_container=st.none() | names,
    conditions=st.lists(
        st.builds(
            ConditionEvidence,
            type=st.sampled_from(["DisruptionTarget", "Ready"]),
            status=st.sampled_from(["True", "False", "Unknown"]),
            reason=st.none() | reasons,
        ),
        max_size=3,
    ).map(tuple),
    exited_by_itself=st.booleans(),
)
launches = evidences.map(lambda evidence: replace(evidence, phase=Phase.LAUNCH))
losses = evidences.map(lambda evidence: replace(evidence, phase=Phase.EXECUTION))

scopes = st.builds(ContainerScope, name=st.none() | names, include_init=st.booleans())
patterns = st.builds(
    ConditionEvidence,
    type=st.sampled_from(["DisruptionTarget", "Ready"]),
    status=st.sampled_from(["True", "False"]),
    reason=st.none() | reasons,
)
matchers = st.one_of(
    st.builds(OnPhases, some(st.sampled_from(Phase))),
    st.builds(OnCategories, some(st.sampled_from(StateChangeCategory))),
    st.builds(OnContainer, names),
    st.builds(OnExitCodes, operator=st.sampled_from(Operator), values=some(codes), containers=scopes),
    st.builds(OnPodConditions, some(patterns).map(tuple)),
    st.builds(OnReasons, reasons=some(reasons), containers=scopes),
    st.builds(
        OnTerminationMessage, pattern=st.sampled_from(["space", "^k", ""]).map(Pattern), containers=scopes
    ),
    st.builds(OwnExit),
    st.builds(ShownReasons, some(reasons)),
)
limits = st.none() | st.integers(min_value=UNLIMITED, max_value=4)
backoffs = st.none() | st.builds(
    lambda initial, more, multiplier, jitter: Backoff(
        initial=initial, maximum=initial + more, multiplier=multiplier, jitter=jitter
    ),
    st.floats(min_value=0, max_value=1e6),
    st.floats(min_value=0, max_value=1e6),
    st.floats(min_value=1, max_value=1e6),
    st.floats(min_value=0, max_value=1),
)

infrastructures = st.builds(
    InfrastructureBudget,
    budget=st.integers(min_value=UNLIMITED, max_value=5),
    delay=st.floats(min_value=0, max_value=1e6),
    reasons=st.frozensets(st.sampled_from(StateChangeReason)),
)


@st.composite
def rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            name=f"rule-{number}",
            action=draw(st.sampled_from([Action.RELAUNCH, *Action])),
            matchers=tuple(draw(st.lists(matchers, min_size=1, max_size=2))),
            retry_limit=draw(limits),
            backoff=draw(backoffs),
            avoid_node=draw(st.none() | st.sampled_from(AvoidNode)),
            mutation=draw(st.none() | st.just(Mutation(node_selector={"pool": "large"}))),
            mutates_after=draw(st.integers(min_value=1, max_value=3)),
        )
        for number in range(draw(st.integers(min_value=0, max_value=3)))
    )


@st.composite
def policy_sets(draw: st.DrawFn) -> PolicySet:
    known = [
        Policy(
            name=name,
            rules=draw(rules()),
            default_action=draw(st.none() | st.sampled_from(Action)),
            retry_limit=draw(limits),
            shared_limit=draw(limits),
            backoff=draw(backoffs),
            avoid_node=draw(st.sampled_from(AvoidNode)),
        )
        for name in draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"]]))
    ]
    return PolicySet(
        policies={policy.name: policy for policy in known},
        default=draw(st.sampled_from(known)).name,
        global_max_retries=draw(st.integers(min_value=UNLIMITED, max_value=6)),
        infrastructure=draw(infrastructures),
        selectors=tuple(
            Selector(policy=policy.name, queues=draw(st.frozensets(st.sampled_from(["gpu", "cpu"]))))
            for policy in draw(st.lists(st.sampled_from(known), max_size=2))
        ),
        origin="drawn",
    )


Question = tuple[PolicySet, Selection]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    policy_set = draw(policy_sets())
    profile = TaskProfile(
        dag_id="dag",
        task_id="task",
        queue=draw(st.sampled_from(["gpu", "cpu"])),
        pool="pool",
        options=TaskOptions(
            policies=tuple(draw(st.lists(st.sampled_from(["a", "b", "c", "gone"]), max_size=2))),
            retries=draw(limits),
            infrastructure_retries=draw(limits),
            wants_infrastructure_retries=draw(st.booleans()),
        ),
    )
    return policy_set, select(policy_set, profile)


histories = st.lists(
    st.builds(
        Decision,
        action=st.sampled_from(Action),
        policy=st.sampled_from(["a", "b", "gone"]),
        rule=st.sampled_from(["rule-0", "rule-1", "defaultAction", "gone"]),
        explanation=st.just(""),
    ),
    max_size=8,
)


def thirty(question: Question, failures: list[Evidence], chance: float = 0.0) -> list[Decision]:
    """Return what is decided about thirty failures, each of which is one of these."""
    policy_set, selection = question
    history: list[Decision] = []
    for number in range(30):
        evidence = failures[number % len(failures)]
        history.append(decide(evidence, selection, policy_set, history, lambda: chance))
    return history


def all_backoffs(policy_set: PolicySet) -> list[Backoff]:
    policies = policy_set.policies.values()
    found = [thing.backoff for policy in policies for thing in (policy, *policy.rules)]
    return [backoff for backoff in found if backoff]


@given(question=questions(), evidence=evidences, history=histories, chance=chances)
def test_every_failure_gets_the_same_decision_each_time(
    question: Question, evidence: Evidence, history: list[Decision], chance: float
) -> None:
    policy_set, selection = question
    first = trace(evidence, selection, policy_set, history, lambda: chance)
    assert trace(evidence, selection, policy_set, tuple(history), lambda: chance) == first
    assert decide(evidence, selection, policy_set, history, lambda: chance) == first.decision
    relaunches = sum(earlier.action is Action.RELAUNCH for earlier in history)
    counted = f"launch {relaunches + 1} of " if evidence.phase is Phase.LAUNCH else "infrastructure retr"
    assert first.decision.explanation.startswith(counted)
    assert Decision.from_dict(first.decision.to_dict()) == first.decision


@given(question=questions(), evidence=evidences, history=histories)
def test_only_a_relaunch_changes_the_next_launch(
    question: Question, evidence: Evidence, history: list[Decision]
) -> None:
    policy_set, selection = question
    decision = decide(evidence, selection, policy_set, history, lambda: 0.0)
    assert decision.mutation is None or decision.action is Action.RELAUNCH


@given(question=questions(), evidence=evidences, history=histories, chance=chances)
def test_delay_is_for_relaunches_between_the_minimum_and_the_longest_backoff(
    question: Question, evidence: Evidence, history: list[Decision], chance: float
) -> None:
    policy_set, selection = question
    decision = decide(evidence, selection, policy_set, history, lambda: chance)
    relaunches = sum(earlier.action is Action.RELAUNCH for earlier in history)
    shortest = minimum_delay(relaunches, lambda: chance)
    longest = max((shortest, *(backoff.maximum for backoff in all_backoffs(policy_set))))
    if evidence.phase is Phase.EXECUTION:
        longest = max(longest, policy_set.infrastructure.delay)
    if decision.action is Action.RELAUNCH:
        assert shortest <= decision.delay <= longest
    else:
        assert decision.delay == 0


@given(question=questions(), evidence=launches, history=histories)
def test_first_match_wins(question: Question, evidence: Evidence, history: list[Decision]) -> None:
    policy_set, selection = question
    found = trace(evidence, selection, policy_set, history, lambda: 0.0)
    for policy in policies_asked(policy_set, selection):
        fitting = [
            rule for rule in policy.rules if all(matcher.check(evidence).holds for matcher in rule.matchers)
        ]
        if fitting or policy.default_action is not None:
            expected = (policy.name, fitting[0].name if fitting else "defaultAction")
            break
    else:
        expected = (policy_set.default, "defaultAction")
    assert (found.decision.policy, found.decision.rule) == expected
    matched = [index for index, step in enumerate(found.steps) if step.matched]
    assert (found.steps[matched[0]].policy, found.steps[matched[0]].rule) == expected


@given(question=questions(), evidence=losses, history=histories)
def test_first_rule_that_matches_a_running_task_wins_then_the_infrastructure(
    question: Question, evidence: Evidence, history: list[Decision]
) -> None:
    policy_set, selection = question
    decision = decide(evidence, selection, policy_set, history, lambda: 0.0)
    fitting = [
        (policy.name, rule.name)
        for policy, _ in selection.policies
        for rule in policy.rules
        if all(matcher.check(evidence).holds for matcher in rule.matchers)
    ]
    ours = (
        evidence.context.category is StateChangeCategory.INFRASTRUCTURE
        and evidence.context.reason in policy_set.infrastructure.reasons
    )
    if not budget_of(policy_set, selection):
        expected = ("infrastructure", "infrastructure_retry_budget")
    else:
        expected = next(iter(fitting), ("infrastructure", "infrastructure" if ours else "defaultAction"))
    assert (decision.policy, decision.rule) == expected


@given(question=questions(), failures=st.lists(losses, min_size=1, max_size=3), chance=chances)
def test_infrastructure_retries_never_exceed_the_budget(
    question: Question, failures: list[Evidence], chance: float
) -> None:
    policy_set, selection = question
    history = thirty(question, failures, chance)
    relaunches = [decision for decision in history if decision.action is Action.RELAUNCH]
    assert within(len(relaunches), budget_of(policy_set, selection))
    assert within(len(relaunches), policy_set.global_max_retries)
    for policy in policy_set.policies.values():
        for rule in policy.rules:
            limit = policy.retry_limit if rule.retry_limit is None else rule.retry_limit
            by_rule = [made for made in relaunches if (made.policy, made.rule) == (policy.name, rule.name)]
            assert within(len(by_rule), limit)


@given(question=questions(), evidence=losses, history=histories)
def test_without_a_budget_whatever_the_file_says_a_running_task_is_not_launched_again(
    question: Question, evidence: Evidence, history: list[Decision]
) -> None:
    policy_set, selection = question
    policy_set = replace(policy_set, infrastructure=replace(policy_set.infrastructure, budget=0))
    selection = replace(selection, infrastructure_retries=None)
    assert decide(evidence, selection, policy_set, history, lambda: 0.0).action is Action.COUNT


@given(question=questions(), evidence=losses)
def test_one_loss_again_and_again_uses_the_budget_up(question: Question, evidence: Evidence) -> None:
    policy_set, selection = question
    unlimited = {
        name: replace(
            policy, retry_limit=None, rules=tuple(replace(rule, retry_limit=None) for rule in policy.rules)
        )
        for name, policy in policy_set.policies.items()
    }
    policy_set = replace(policy_set, policies=unlimited, global_max_retries=UNLIMITED)
    selection = replace(
        selection,
        policies=tuple(SelectedPolicy(unlimited[policy.name], why) for policy, why in selection.policies),
    )
    history = thirty((policy_set, selection), [evidence])
    relaunches = sum(decision.action is Action.RELAUNCH for decision in history)
    budget = budget_of(policy_set, selection)
    assert relaunches in (0, 30 if budget == UNLIMITED else budget)


@given(question=questions(), failures=st.lists(launches, min_size=1, max_size=3), chance=chances)
def test_relaunches_never_exceed_a_limit(question: Question, failures: list[Evidence], chance: float) -> None:
    policy_set, selection = question
    history = thirty(question, failures, chance)
    for decision in history:
        for counted, limit in bounds(decision, policy_set, selection, history):
            assert within(len(counted), limit)


@given(question=questions(), evidence=launches)
def test_one_failure_again_and_again_uses_the_narrowest_limit_up(
    question: Question, evidence: Evidence
) -> None:
    policy_set, selection = question
    history = thirty(question, [evidence])
    first = history[0]
    policy = next(item for item in policies_asked(policy_set, selection) if item.name == first.policy)
    rule = next((rule for rule in policy.rules if rule.name == first.rule), None)
    action = rule.action if rule else policy.default_action
    binding = [limit for _, limit in bounds(first, policy_set, selection, [])]
    narrowest = min((limit for limit in binding if limit not in (None, UNLIMITED)), default=30)
    expected = narrowest if action is Action.RELAUNCH else 0
    assert [decision.action for decision in history[:expected]] == [Action.RELAUNCH] * expected
    assert Action.RELAUNCH not in {decision.action for decision in history[expected:]}


@given(question=questions(), failures=st.lists(launches, min_size=1, max_size=3))
def test_failure_counts_only_if_a_limit_of_its_rule_or_of_all_is_reached(
    question: Question, failures: list[Evidence]
) -> None:
    policy_set, selection = question
    history = thirty(question, failures)
    for number, decision in enumerate(history):
        if "no relaunch is left" in decision.explanation:
            reached = bounds(decision, policy_set, selection, history[:number])
            assert any(limit not in (None, UNLIMITED) and len(used) >= limit for used, limit in reached)


def policies_asked(policy_set: PolicySet, selection: Selection) -> list[Policy]:
    """Return the policies that are asked about a launch, none of which is built-in."""
    policies = [policy for policy, _ in selection.policies]
    if budget_of(policy_set, selection):
        policies.append(infrastructure_policy(policy_set.infrastructure, Phase.LAUNCH))
    return policies


def bounds(
    decision: Decision, policy_set: PolicySet, selection: Selection, history: list[Decision]
) -> list[tuple[list[Decision], int | None]]:
    """Return what bounds the relaunches by a decision's rule, each with the relaunches that count."""
    relaunches = [made for made in history if made.action is Action.RELAUNCH]
    by_policy = [made for made in relaunches if made.policy == decision.policy]
    if decision.policy == "infrastructure":
        narrower = [(by_policy, budget_of(policy_set, selection))]
    else:
        policy = policy_set.policies[decision.policy]
        by_rule = [made for made in by_policy if made.rule == decision.rule]
        others = [made for made in relaunches if made.policy != "infrastructure"]
        narrower = [
            (by_rule, effective_limits(policy, selection)[decision.rule]),
            (others, selection.retries),
            (by_policy, policy.shared_limit if selection.retries is None else None),
        ]
    return [*narrower, (relaunches, policy_set.global_max_retries)]


def effective_limits(policy: Policy, selection: Selection) -> dict[str, int | None]:
    """Return the limit of each rule, that of the default action among them: its own, else the policy's."""
    inherited = policy.retry_limit if selection.retries is None else None
    own = {rule.name: rule.retry_limit for rule in policy.rules} | {"defaultAction": None}
    return {name: inherited if limit is None else limit for name, limit in own.items()}


def budget_of(policy_set: PolicySet, selection: Selection) -> int:
    own = selection.infrastructure_retries
    return policy_set.infrastructure.budget if own is None else own


def within(count: int, limit: int | None) -> bool:
    return limit in (None, UNLIMITED) or count <= limit
