# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
From a failure to a decision, and the way there.

Pure and total: every failure gets a decision from every set of policies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from airflow_resilience.decision import NO_POLICY, UNLIMITED, Action, Decision
from airflow_resilience.retry_policy.evidence import Evidence
from airflow_resilience.retry_policy.matchers import Finding
from airflow_resilience.retry_policy.minimum_backoff import describe_minimum, minimum_delay
from airflow_resilience.retry_policy.rule import Policy, PolicySet, Rule
from airflow_resilience.retry_policy.selection import RETRIES_KEY, Selection

DEFAULT_ACTION: Final = "defaultAction"
"""The rule's name where no rule has matched."""

MINIMUM: Final = "minimumBackoff"
"""The rule's name in the step about the minimum delay, which holds for every policy."""


@dataclass(frozen=True, slots=True)
class Step:
    """One rule, limit or minimum that was looked at."""

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
    """How many relaunches a try may have, and how many it has had."""

    field: str
    """Its name where it is configured."""
    owner: str
    used: int
    allowed: int
    source: str = ""
    """Whose limit it is, if the owner does not say so."""

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
    :param history: earlier decisions about this try, oldest first
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
    relaunches = [
        earlier for earlier in history if earlier.action is Action.RELAUNCH and earlier.policy != NO_POLICY
    ]
    policy, rule, steps = _match(evidence, selection, policy_set)
    limits = tuple(_limits(policy, rule, selection, policy_set, relaunches))
    if rule.action is Action.RELAUNCH:
        steps.extend(Step(policy.name, limit.field, limit.left == 0, str(limit)) for limit in limits)
    decision = _conclude(policy, rule, limits, relaunches, random)
    if decision.action is Action.RELAUNCH:
        made = sum(earlier.action is Action.RELAUNCH for earlier in history)
        if minimum := minimum_delay(made, random):
            steps.append(Step(policy.name, MINIMUM, minimum > decision.delay, describe_minimum(made)))
            decision = replace(decision, delay=max(decision.delay, minimum))
    return Trace(decision, tuple(steps))


def _match(
    evidence: Evidence, selection: Selection, policy_set: PolicySet
) -> tuple[Policy, Rule, list[Step]]:
    """Return the first rule that applies, its policy, and a step for each rule up to it."""
    steps: list[Step] = []
    for policy, rule in _candidates(selection):
        finding = _check(rule, evidence)
        steps.append(Step(policy.name, rule.name, *finding))
        if finding.holds:
            return policy, rule, steps
    policy = policy_set.default_policy
    rule = Rule(name=DEFAULT_ACTION, action=Action.COUNT, matchers=(), note="no rule is about it")
    steps.append(Step(policy.name, rule.name, True, rule.note))
    return policy, rule, steps


def _candidates(selection: Selection) -> Iterator[tuple[Policy, Rule]]:
    for policy, _ in selection.policies:
        for rule in policy.rules:
            yield policy, rule
        if policy.default_action is not None:
            yield policy, Rule(name=DEFAULT_ACTION, action=policy.default_action, matchers=())


def _check(rule: Rule, evidence: Evidence) -> Finding:
    """Return what all conditions say, or the first one that does not hold."""
    whys: list[str] = []
    for matcher in rule.matchers:
        finding = matcher.check(evidence)
        if not finding.holds:
            return finding
        whys.append(finding.why)
    return Finding(True, "; ".join(whys) or "applies to whatever no rule before it is about")


def _limits(
    policy: Policy, rule: Rule, selection: Selection, policy_set: PolicySet, relaunches: Sequence[Decision]
) -> Iterator[_Limit]:
    """
    Yield what bounds the relaunches by a rule.

    The rule's own limit, or else its policy's, counts the relaunches by this rule. The task's limit replaces
    the policy's. Like the global limit, it counts every relaunch of the try.
    """
    by_rule = partial(
        _Limit, "retryLimit", f"policy {policy.name}, rule {rule.name}", _count(relaunches, policy, rule)
    )
    if rule.retry_limit is not None:
        yield by_rule(rule.retry_limit, "the rule's own limit")
    elif selection.retries is None and policy.retry_limit is not None:
        yield by_rule(policy.retry_limit, "the policy's limit for each rule")
    if selection.retries is not None:
        yield _Limit(RETRIES_KEY, f"the task's {RETRIES_KEY}", len(relaunches), selection.retries)
    elif policy.shared_limit is not None:
        yield _Limit(RETRIES_KEY, f"policy {policy.name}", _count(relaunches, policy), policy.shared_limit)
    yield _Limit("globalMaxRetries", "globalMaxRetries", len(relaunches), policy_set.global_max_retries)


def _count(relaunches: Sequence[Decision], policy: Policy, rule: Rule | None = None) -> int:
    return sum(
        earlier.policy == policy.name and (rule is None or earlier.rule == rule.name)
        for earlier in relaunches
    )


def _conclude(
    policy: Policy,
    rule: Rule,
    limits: Sequence[_Limit],
    relaunches: Sequence[Decision],
    random: Callable[[], float],
) -> Decision:
    """Turn the rule that applies into a decision, within the limits."""
    decision = partial(Decision, policy=policy.name, rule=rule.name)
    launches = _launches(len(relaunches) + 1, limits)
    if rule.action is Action.RELAUNCH and (reached := [limit for limit in limits if limit.left == 0]):
        return decision(action=Action.COUNT, explanation=f"{launches}; no relaunch is left; {reached[0]}")
    clauses = (launches, rule.note, f"policy {policy.name}, rule {rule.name}")
    explanation = "; ".join(filter(None, clauses))
    if rule.action is not Action.RELAUNCH:
        return decision(action=rule.action, explanation=explanation)
    backoff = rule.backoff or policy.backoff
    attempt = _count(relaunches, policy, rule) + 1
    return decision(
        action=Action.RELAUNCH,
        explanation=explanation,
        delay=backoff.delay(attempt, random) if backoff else 0.0,
        avoid_node=rule.avoid_node or policy.avoid_node,
    )


def _launches(launch: int, limits: Sequence[_Limit]) -> str:
    """Say which launch has failed, and how many there can be if the same failure repeats."""
    left = min(limit.left for limit in limits)
    # Not math.isinf(), which raises for whole numbers beyond the range of a float.
    return f"launch {launch} of {'unlimited' if left == math.inf else launch + int(left)}"
