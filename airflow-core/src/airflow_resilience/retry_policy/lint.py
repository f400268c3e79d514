# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Warnings about parts of a valid policy file that have no effect, or an unintended one.

Such a part is most likely a mistake, but no reason to refuse the file: a platform may have unknown words, and
a limit may be meant for later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic.alias_generators import to_camel

from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.decision import UNLIMITED, AvoidNode
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.fields import nearest, shown
from airflow_resilience.retry_policy.marked_yaml import Location
from airflow_resilience.retry_policy.matchers import (
    EVERY_CONTAINER,
    Matcher,
    OnCategories,
    OnExitCodes,
    OnPhases,
    OnReasons,
    Operator,
)
from airflow_resilience.retry_policy.problems import path_of
from airflow_resilience.retry_policy.schema import PolicyFields, PolicyFile, RuleFields, SelectorFields

_Finding = tuple[Location, str]
_RETRY: Final = "Retry"
_OF_RELAUNCHES: Final = ("retry_limit", "backoff", "avoid_node")
_IN_PHASE: Final = {phase: (OnPhases(frozenset({phase})),) for phase in Phase}
_COMPARED_RULES: Final = 100
"""Number of earlier rules that a rule is compared with: the time for a file is linear in its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """
    The known words of a platform for workers that fail, and their classifications.

    Runtimes and controllers may add words, so an unknown word is no error.
    """

    reasons: frozenset[str]
    """Of a worker as a whole, and of its containers."""
    reason_prefixes: tuple[str, ...] = ()
    """Prefixes of reasons, of conditions too, whose rest is a name."""
    words_of_others: Mapping[str, str] = field(default_factory=dict)
    """Known words that are meant by words of other platforms."""
    condition_types: frozenset[str]
    condition_reasons: frozenset[str]
    categories: frozenset[StateChangeCategory]
    """What a failure can be classified as."""
    classified_reasons: frozenset[StateChangeReason]
    """What a failure can be classified as."""

    def warning_about(self, reason: str, others: Collection[str] = ()) -> str | None:
        """
        Return a warning about an unknown word for a reason; None for a known word.

        :param others: further known words
        """
        known = self.reasons | set(others)
        meant = self.words_of_others.get(reason)
        if reason in known or (reason.startswith(self.reason_prefixes) and not meant):
            return None
        similar = f" (did you mean {meant}?)" if meant else nearest(reason, sorted(known))
        return f"got {shown(reason)}, which is no reason that is known{similar}"


def find_warnings(file: PolicyFile, vocabulary: Vocabulary | None) -> Iterator[_Finding]:
    """
    Yield a warning for each part that has no effect, or an unintended one, with its location.

    :param vocabulary: words that can match; None for all words
    """
    for index, policy in enumerate(file.policies):
        location: Location = ("policies", index)
        yield from _of_policy(policy, location, file.global_max_retries)
        yield from _never_reached(policy, location, vocabulary)
        for position, rule in enumerate(policy.rules or ()):
            place = (*location, "rules", position)
            yield from _of_rule(rule, place, policy, file.global_max_retries)
            if vocabulary:
                yield from _unknown_words(rule, place, vocabulary)
    yield from _never_asked(file, vocabulary)


def _unknown_words(rule: RuleFields, location: Location, vocabulary: Vocabulary) -> Iterator[_Finding]:
    for index, reason in enumerate(rule.on_reasons or ()):
        if warning := _warning_about(reason, vocabulary):
            yield (*location, "onReasons", index), warning
    for index, category in enumerate(rule.on_categories or ()):
        if category not in vocabulary.categories:
            yield (*location, "onCategories", index), _never_classified(category)
    for index, condition in enumerate(rule.on_pod_conditions or ()):
        place = (*location, "onPodConditions", index)
        types, reasons = vocabulary.condition_types, vocabulary.condition_reasons
        # Conditions of other controllers have a domain:
        # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-readiness-gate
        if "/" not in condition.type and condition.type not in types:
            yield (*place, "type"), _unknown("condition", condition.type, types)
        word = condition.reason
        if word is not None and word not in reasons and not word.startswith(vocabulary.reason_prefixes):
            yield (*place, "reason"), _unknown("reason of a condition", word, reasons)


def _warning_about(reason: str, vocabulary: Vocabulary) -> str | None:
    if reason in StateChangeReason.__members__ and reason not in vocabulary.classified_reasons:
        return _never_classified(reason)
    return vocabulary.warning_about(reason, vocabulary.classified_reasons)


def _never_classified(word: str) -> str:
    return f"got {shown(str(word))}, which no failure is classified as"


def _unknown(kind: str, word: str, known: Collection[str]) -> str:
    return f"got {shown(word)}, which is no {kind} that is known{nearest(word, sorted(known))}"


def _of_rule(rule: RuleFields, location: Location, policy: PolicyFields, brake: int) -> Iterator[_Finding]:
    if rule.action != _RETRY:
        yield from _without_effect(rule, location, f"the action is {rule.action}")
    else:
        yield from _above(rule.retry_limit, location, brake)
        yield from _requires_other_nodes(rule, location)
        yield from _never_mutates(rule, location, policy.retry_limit, brake)


def _of_policy(policy: PolicyFields, location: Location, brake: int) -> Iterator[_Finding]:
    retrying = [rule for rule in policy.rules or () if rule.action == _RETRY]
    if not retrying and policy.default_action != _RETRY:
        yield from _without_effect(policy, location, "nothing in this policy says Retry")
        return
    yield from _above(policy.retry_limit, location, brake)
    yield from _requires_other_nodes(policy, location)
    limited = all(rule.retry_limit is not None for rule in retrying) and policy.default_action != _RETRY
    if policy.retry_limit is not None and limited:
        yield (*location, "retryLimit"), "has no effect: every rule that says Retry has its own"


def _without_effect(holder: RuleFields | PolicyFields, location: Location, why: str) -> Iterator[_Finding]:
    for name in _OF_RELAUNCHES:
        if name in holder.model_fields_set:
            yield (*location, to_camel(name)), f"has no effect: {why}"


def _requires_other_nodes(holder: RuleFields | PolicyFields, location: Location) -> Iterator[_Finding]:
    if holder.avoid_node is AvoidNode.REQUIRE:
        yield (
            (*location, "avoidNode"),
            "is require: Karpenter provisions no node for such a pod; prefer does not stop it from 1.5 on",
        )


def _never_mutates(
    rule: RuleFields, location: Location, policy: int | None, brake: int
) -> Iterator[_Finding]:
    if rule.mutate is None:
        return
    limits = {"its retryLimit": rule.retry_limit, "globalMaxRetries": brake}
    if rule.retry_limit is None:
        limits["the policy's retryLimit"] = policy
    for name, limit in limits.items():
        if limit is not None and UNLIMITED < limit < rule.mutate.after:
            got = f"got {rule.mutate.after}, which is never reached: {name} is {limit}"
            yield (*location, "mutate", "after"), got
            return


def _above(limit: int | None, location: Location, brake: int) -> Iterator[_Finding]:
    # 0 switches relaunches off on purpose, despite the limits; -1 is no limit.
    if limit is not None and 0 < brake < limit:
        yield (*location, "retryLimit"), f"got {limit}, which is never reached: globalMaxRetries is {brake}"


def _never_reached(
    policy: PolicyFields, location: Location, vocabulary: Vocabulary | None
) -> Iterator[_Finding]:
    compiled = [rule.compile(index).matchers for index, rule in enumerate(policy.rules or ())]
    places: list[Location] = [(*location, "rules", index) for index in range(len(compiled))]
    # The default action is like a last rule for all launches.
    if policy.default_action is not None:
        compiled.append(_IN_PHASE[Phase.LAUNCH])
        places.append((*location, "defaultAction"))
    for index, matchers in enumerate(compiled):
        first = max(0, index - _COMPARED_RULES)
        for earlier, place in zip(compiled[first:index], places[first:index], strict=True):
            if _covers(earlier, matchers, vocabulary):
                yield places[index], f"is never reached: {path_of(place)} matches all that is left for it"
                break


def _covers(earlier: tuple[Matcher, ...], later: tuple[Matcher, ...], vocabulary: Vocabulary | None) -> bool:
    """Say whether all failures that meet the later conditions meet the earlier ones."""
    return all(_follows(matcher, later, vocabulary) for matcher in earlier)


def _follows(matcher: Matcher, others: tuple[Matcher, ...], vocabulary: Vocabulary | None) -> bool:
    """Say whether a condition holds wherever the others do."""
    match matcher:
        case OnPhases(phases):
            stated = next((other.phases for other in others if isinstance(other, OnPhases)), frozenset(Phase))
            return stated <= phases
        case OnCategories(categories):
            possible = vocabulary.categories if vocabulary else frozenset(StateChangeCategory)
            found = (other.categories for other in others if isinstance(other, OnCategories))
            return possible & next(found, possible) <= categories
        case _:
            return any(_narrower(other, matcher) for other in others)


def _narrower(matcher: Matcher, other: Matcher) -> bool:
    """Say whether a condition is the other one, or holds for fewer failures."""
    match matcher, other:
        case OnReasons(), OnReasons():
            return matcher.reasons <= other.reasons and other.containers in (
                matcher.containers,
                EVERY_CONTAINER,
            )
        case OnExitCodes(operator=Operator.IN), OnExitCodes(operator=Operator.IN):
            return matcher.values <= other.values and other.containers in (
                matcher.containers,
                EVERY_CONTAINER,
            )
        case _:
            return matcher == other


def _never_asked(file: PolicyFile, vocabulary: Vocabulary | None) -> Iterator[_Finding]:
    """Find policies and selectors that come after policies that decide about every failure of every task."""
    policies = {policy.name: policy for policy in file.policies}
    deciders: dict[Phase, str] = {}
    asked = set()
    for index, selector in enumerate(file.selection or ()):
        policy = policies.get(selector.policy)
        # A policy that is not in the file is the built-in one, about launches.
        phases = _phases(policy) if policy else {Phase.LAUNCH}
        if why := _all_decided(phases, deciders):
            yield ("selection", index), why
            continue
        asked.add(selector.policy)
        if policy and _selects_every_task(selector):
            for phase in phases:
                if _decides_always(policy, phase, vocabulary):
                    deciders.setdefault(phase, f"selection[{index}] gives every task {policy.name}")
    for index, policy in enumerate(file.policies):
        if policy.name not in asked and (why := _all_decided(_phases(policy), deciders)):
            yield ("policies", index), why


def _all_decided(phases: Collection[Phase], deciders: Mapping[Phase, str]) -> str | None:
    """Say why no further policy is asked about these phases; None if a further policy is asked."""
    if not deciders.keys() >= set(phases):
        return None
    by_decider = {
        decider: [phase for phase in Phase if deciders.get(phase) == decider]
        for decider in dict.fromkeys(deciders[phase] for phase in Phase if phase in phases)
    }
    whys = (f"{decider}, which decides about {_failures(all_)}" for decider, all_ in by_decider.items())
    return f"is never asked: {', and '.join(whys)}"


def _failures(phases: Sequence[Phase]) -> str:
    match phases:
        case [Phase.LAUNCH]:
            return "every failed launch"
        case [Phase.EXECUTION]:
            return "every loss of a running task"
        case _:
            return "every failure"


def _phases(policy: PolicyFields) -> set[Phase]:
    """Return the phases of a policy's rules and default action."""
    phases = {
        phase
        for rule in policy.rules or ()
        for phase in Phase
        if not rule.phases or phase.capitalize() in rule.phases
    }
    return phases if policy.default_action is None else phases | {Phase.LAUNCH}


def _decides_always(policy: PolicyFields, phase: Phase, vocabulary: Vocabulary | None) -> bool:
    """Say whether a policy decides about every failure in a phase."""
    if policy.default_action is not None and phase is Phase.LAUNCH:
        return True
    return any(
        _covers(rule.compile(index).matchers, _IN_PHASE[phase], vocabulary)
        for index, rule in enumerate(policy.rules or ())
    )


def _selects_every_task(selector: SelectorFields) -> bool:
    return "*" in (selector.dag_ids or ()) and not (selector.queues or selector.pools or selector.dag_tags)
