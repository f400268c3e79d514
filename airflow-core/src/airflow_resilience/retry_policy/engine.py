# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Decides about failures, and returns the steps to each decision.

Pure and total: every failure gets a decision from every set of policies.

A failed launch and the loss of a running task differ in three respects: the last policy, the limits, and the
name of the retries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from airflow_resilience.backoff import Backoff, constant_backoff
from airflow_resilience.decision import NO_POLICY, UNLIMITED, Action, BudgetUse, Decision
from airflow_resilience.retry_policy.built_in import AIRFLOW_UNREACHABLE, BUILT_IN, infrastructure_policy
from airflow_resilience.retry_policy.evidence import Evidence, Phase
from airflow_resilience.retry_policy.matchers import Finding
from airflow_resilience.retry_policy.rule import BUDGET_OPTION, INFRASTRUCTURE, Policy, PolicySet, Rule
from airflow_resilience.retry_policy.selection import INFRASTRUCTURE_LIMIT_KEY, RETRIES_KEY, Selection

DEFAULT_ACTION: Final = "defaultAction"
"""The rule's name where no rule has matched."""

NO_RULE: Final = "no rule is about it"
"""Reason of the decision, where no policy has a default action either."""

MINIMUM: Final = "minimumBackoff"
"""Name of the rule in the step about the minimum delay, which holds for every policy."""

IMMEDIATE_RELAUNCHES = 3
"""Number of relaunches of a try without a minimum delay."""

MINIMUM_BACKOFF = Backoff(initial=2.0, maximum=60.0, jitter=0.5)
"""Minimum delay before each further relaunch: a worker that always fails at once is not launched in a busy
loop."""


@dataclass(frozen=True, slots=True)
class Step:
    """A rule, limit or minimum on the way to a decision."""

    policy: str
    rule: str
    """Name of the rule, or of the field that holds the limit, or :data:`MINIMUM`."""
    matched: bool
    """Whether the rule matches, the limit is reached, or the minimum is longer than the policy's delay."""
    why: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A decision and the steps that led to it, in their order."""

    decision: Decision
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit of the relaunches of a try, and their number so far."""

    field: str
    """Name of the limit where it is configured."""
    owner: str
    used: int
    allowed: int
    source: str = ""
    """Origin of the limit, if the owner does not name it."""

    @property
    def left(self) -> float:
        return math.inf if self.allowed == UNLIMITED else max(0, self.allowed - self.used)

    def __str__(self) -> str:
        allowed = "any number of" if self.allowed == UNLIMITED else self.allowed
        return f"{self.owner}: retried {self.used} of {allowed} times{self.source and f', {self.source}'}"


def decide(
    evidence: Evidence,
    selection: Selection,
    policy_set: PolicySet,
    history: Sequence[Decision],
    random: Callable[[], float],
) -> Decision:
    """
    Decide about one failure; the delay of the decision is final.

    :param evidence: the failure
    :param selection: the policies of the task that failed
    :param policy_set: everything that is in force
    :param history: earlier decisions about this try and about failures in the same phase, oldest first
    :param random: returns a number from 0 up to 1, for the jitter
    """
    return trace(evidence, selection, policy_set, history, random).decision


def trace(
    evidence: Evidence,
    selection: Selection,
    policy_set: PolicySet,
    history: Sequence[Decision],
    random: Callable[[], float],
) -> Trace:
    """Decide as :func:`decide` does, and return each step too."""
    why_off = _why_off(selection, policy_set)
    if why_off and evidence.phase is Phase.EXECUTION:
        decision = Decision(
            action=Action.COUNT, policy=INFRASTRUCTURE, rule=BUDGET_OPTION, explanation=why_off
        )
        return Trace(decision, (Step(INFRASTRUCTURE, BUDGET_OPTION, True, why_off),))
    infrastructure = None if why_off else infrastructure_policy(policy_set.infrastructure, evidence.phase)
    relaunches = [
        earlier for earlier in history if earlier.action is Action.RELAUNCH and earlier.policy != NO_POLICY
    ]
    policy, rule, steps = _match(evidence, selection, policy_set.default_policy, infrastructure)
    limits = tuple(_limits(evidence.phase, policy, rule, selection, policy_set, relaunches))
    if rule.action is Action.RELAUNCH:
        steps.extend(Step(policy.name, limit.field, limit.left == 0, str(limit)) for limit in limits)
    backoff = rule.backoff or policy.backoff
    if backoff is None and evidence.phase is Phase.EXECUTION:
        backoff = constant_backoff(policy_set.infrastructure.delay)
    decision = _conclude(evidence.phase, policy, rule, limits, backoff, relaunches, random)
    if decision.action is Action.RELAUNCH:
        made = sum(earlier.action is Action.RELAUNCH for earlier in history)
        if minimum := minimum_delay(made, random):
            steps.append(Step(policy.name, MINIMUM, minimum > decision.delay, _describe_minimum(made)))
            decision = replace(decision, delay=max(decision.delay, minimum))
    return Trace(decision, tuple(steps))


def _match(
    evidence: Evidence, selection: Selection, default: Policy, infrastructure: Policy | None
) -> tuple[Policy, Rule, list[Step]]:
    """Return the first rule that applies, its policy, and a step for each rule up to it."""
    steps: list[Step] = []
    for policy, rule in _candidates(evidence.phase, selection, infrastructure):
        finding = _check(rule, evidence)
        steps.append(Step(policy.name, rule.name, *finding))
        if finding.holds:
            return policy, rule, steps
    last = infrastructure if infrastructure and evidence.phase is Phase.EXECUTION else default
    rule = Rule(name=DEFAULT_ACTION, action=Action.COUNT, matchers=(), note=NO_RULE)
    steps.append(Step(last.name, rule.name, True, rule.note))
    return last, rule, steps


def _candidates(
    phase: Phase, selection: Selection, infrastructure: Policy | None
) -> Iterator[tuple[Policy, Rule]]:
    policies = [policy for policy, _ in selection.policies]
    if infrastructure:
        names = [policy.name for policy in policies]
        place = names.index(BUILT_IN) if phase is Phase.LAUNCH and BUILT_IN in names else len(names)
        policies.insert(place, infrastructure)
    for policy in policies:
        for rule in policy.rules:
            yield policy, rule
        # A default action is for failed launches. Only a rule, or the budget, runs code again.
        if policy.default_action is not None and phase is Phase.LAUNCH:
            yield policy, Rule(name=DEFAULT_ACTION, action=policy.default_action, matchers=())


def _why_off(selection: Selection, policy_set: PolicySet) -> str | None:
    """Say why a running task is never launched again; None if a relaunch is possible."""
    if selection.infrastructure_retries is None:
        budget, owner = policy_set.infrastructure.budget, BUDGET_OPTION
    else:
        budget, owner = selection.infrastructure_retries, "the budget that the task's executor_config states"
    return None if budget else f"infrastructure retries are off: {owner} is 0"


def _check(rule: Rule, evidence: Evidence) -> Finding:
    """Return the finding of all conditions, or of the first that does not hold."""
    whys: list[str] = []
    for matcher in rule.matchers:
        finding = matcher.check(evidence)
        if not finding.holds:
            return finding
        whys.append(finding.why)
    return Finding(True, "; ".join(whys) or "applies to whatever no rule before it is about")


def _limits(
    phase: Phase,
    policy: Policy,
    rule: Rule,
    selection: Selection,
    policy_set: PolicySet,
    relaunches: Sequence[Decision],
) -> Iterator[_Limit]:
    """
    Yield what bounds the relaunches by a rule.

    The rule's own limit, or else its policy's, counts the relaunches by this rule. For launches, the task's
    limit replaces the policy's; for running tasks the infrastructure budget holds beside it. Like the global
    limit, both count every relaunch of the try, in the phase in question. Launches of workers that could not
    reach Airflow use the infrastructure budget alone.
    """
    replaced = phase is Phase.LAUNCH and selection.retries is not None
    used_by_rule = _count(relaunches, policy, rule)
    by_rule = partial(_Limit, "retryLimit", f"policy {policy.name}, rule {rule.name}", used_by_rule)
    if rule.retry_limit is not None:
        yield by_rule(rule.retry_limit, "the rule's own limit")
    elif policy.retry_limit is not None and not replaced:
        yield by_rule(policy.retry_limit, "the policy's limit for each rule")
    if phase is Phase.EXECUTION:
        yield _budget(selection, policy_set, len(relaunches))
    elif _is_by_budget(policy.name, rule.name):
        yield _budget(selection, policy_set, used_by_rule)
    elif selection.retries is not None:
        used = sum(not _is_by_budget(earlier.policy, earlier.rule) for earlier in relaunches)
        yield _Limit(RETRIES_KEY, f"the task's {RETRIES_KEY}", used, selection.retries)
    elif policy.shared_limit is not None:
        yield _Limit(RETRIES_KEY, f"policy {policy.name}", _count(relaunches, policy), policy.shared_limit)
    yield _Limit("globalMaxRetries", "globalMaxRetries", len(relaunches), policy_set.global_max_retries)


def _is_by_budget(policy: str, rule: str) -> bool:
    return (policy, rule) == (INFRASTRUCTURE, AIRFLOW_UNREACHABLE)


def _budget(selection: Selection, policy_set: PolicySet, used: int) -> _Limit:
    if selection.infrastructure_retries is None:
        return _Limit(BUDGET_OPTION, BUDGET_OPTION, used, policy_set.infrastructure.budget)
    key = INFRASTRUCTURE_LIMIT_KEY
    return _Limit(key, f"the task's {key}", used, selection.infrastructure_retries)


def _count(relaunches: Sequence[Decision], policy: Policy, rule: Rule | None = None) -> int:
    return sum(
        earlier.policy == policy.name and (rule is None or earlier.rule == rule.name)
        for earlier in relaunches
    )


def _conclude(
    phase: Phase,
    policy: Policy,
    rule: Rule,
    limits: Sequence[_Limit],
    backoff: Backoff | None,
    relaunches: Sequence[Decision],
    random: Callable[[], float],
) -> Decision:
    """Turn the rule that applies into a decision, within the limits."""
    reached = [limit for limit in limits if limit.left == 0]
    relaunch = rule.action is Action.RELAUNCH and not reached
    used, left = len(relaunches), min(limit.left for limit in limits)
    # Not math.isinf(), which raises for whole numbers beyond the range of a float.
    allowed = None if left == math.inf else used + int(left)
    standing = (
        _launches(used, allowed)
        if phase is Phase.LAUNCH
        else _infrastructure_retries(relaunch, used, allowed)
    )
    budget = BudgetUse(used + relaunch, allowed)
    decision = partial(Decision, policy=policy.name, rule=rule.name, budget=budget)
    if rule.action is Action.RELAUNCH and reached:
        none_left = "no relaunch" if phase is Phase.LAUNCH else "no infrastructure retry"
        explanation = f"{standing}; {none_left} is left; {reached[0]}"
        return decision(action=Action.COUNT, explanation=explanation, ran_out=True)
    attempt = _count(relaunches, policy, rule) + 1
    mutation = rule.mutation if relaunch and attempt >= rule.mutates_after else None
    changes = f"the next launch has {mutation}" if mutation else ""
    clauses = (standing, rule.note, f"policy {policy.name}, rule {rule.name}", changes)
    explanation = "; ".join(filter(None, clauses))
    if not relaunch:
        return decision(action=rule.action, explanation=explanation)
    return decision(
        action=Action.RELAUNCH,
        explanation=explanation,
        mutation=mutation,
        delay=backoff.delay(attempt, random) if backoff else 0.0,
        avoid_node=rule.avoid_node or policy.avoid_node,
    )


def _launches(used: int, allowed: int | None) -> str:
    """Say which launch has failed, and how many launches are possible if the same failure repeats."""
    return f"launch {used + 1} of {_total(None if allowed is None else allowed + 1)}"


def _infrastructure_retries(relaunch: bool, used: int, allowed: int | None) -> str:
    """Say which infrastructure retry follows, or how many preceded this failure."""
    if relaunch:
        return f"infrastructure retry {used + 1} of {_total(allowed)}"
    return f"infrastructure retries used: {used} of {_total(allowed)}"


def _total(allowed: int | None) -> str:
    return "unlimited" if allowed is None else str(allowed)


def minimum_delay(relaunches: int, random: Callable[[], float]) -> float:
    """
    Return the seconds that the next relaunch of a try waits at least.

    :param relaunches: number of earlier relaunches of the try, by any policy
    :param random: returns a number from 0 up to 1, for the jitter
    """
    attempt = relaunches + 1 - IMMEDIATE_RELAUNCHES
    return MINIMUM_BACKOFF.delay(attempt, random) if attempt > 0 else 0.0


def _describe_minimum(relaunches: int) -> str:
    return (
        f"relaunch {relaunches + 1} of the try: from relaunch {IMMEDIATE_RELAUNCHES + 1} on there is a delay,"
        f" up to {MINIMUM_BACKOFF.maximum:g} s"
    )
