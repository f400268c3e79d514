# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What holds for the classification of every pod that there can be, however unlikely."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import classify, make_evidence
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    PodFailure,
    find_failure,
    find_obstacle,
    find_silent_exit,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ConditionFacts, PodFacts
from airflow_resilience.context import MetadataKey, StateChangeCategory
from airflow_resilience.retry_policy.evidence import Phase

from ....support.strategies import PODS, REASONS, SETS_OF_REASONS, WORDS

Finder = Callable[[PodFacts], PodFailure | None]

FINDERS: dict[str, Finder] = {
    "ended": find_failure,
    "given up": lambda facts: find_failure(facts, given_up_reasons=WORDS),
    "gone": lambda facts: find_failure(facts, gone=True),
    "obstacle": find_obstacle,
    "overdue": partial(PodFailure, DELETION_OVERDUE, alive=True),
    "silent exit": find_silent_exit,
}
every_finder = pytest.mark.parametrize("find", FINDERS.values(), ids=FINDERS.keys())


def is_infrastructure(failure: PodFailure) -> bool:
    return classify(failure).context.category is StateChangeCategory.INFRASTRUCTURE


@every_finder
@given(facts=PODS, launch_number=st.none() | st.integers(1))
def test_every_failure_is_classified_always_alike_and_fit_for_json(
    find: Finder, facts: PodFacts, launch_number: int | None
) -> None:
    failure = find(facts)
    if failure is None:
        return
    classified = classify(failure, launch_number=launch_number)
    assert classified == classify(failure, launch_number=launch_number)
    assert classified.cause in TABLE
    metadata = classified.context.metadata
    assert metadata.keys() <= set(MetadataKey)
    assert json.loads(json.dumps(metadata)) == metadata
    assert {type(value) for value in metadata.values()} <= {str, int}, "flat, and nothing that is not known"


def _with_condition(facts: PodFacts, reason: str | None) -> PodFacts:
    condition = ConditionFacts("DisruptionTarget", "True", reason)
    return replace(facts, conditions=(*facts.conditions, condition))


def _deleted(facts: PodFacts) -> PodFacts:
    return replace(facts, deletion_timestamp=datetime(2026, 3, 1, tzinfo=UTC))


DISRUPTIONS: dict[str, Callable[[PodFacts], PodFacts]] = {
    "preempted": lambda facts: _with_condition(facts, "PreemptionByScheduler"),
    "tainted": lambda facts: _with_condition(facts, "DeletionByTaintManager"),
    "drained": lambda facts: _with_condition(facts, "EvictionByEvictionAPI"),
    "collected": lambda facts: _with_condition(facts, "DeletionByPodGC"),
    "ended by the kubelet": lambda facts: _with_condition(facts, "TerminationByKubelet"),
    "disrupted for a new reason": lambda facts: _with_condition(facts, "Odd"),
    "disrupted without a reason": lambda facts: _with_condition(facts, None),
    "deleted": _deleted,
    "node shut down": lambda facts: replace(facts, reason=facts.reason or "Terminated"),
    "node lost": lambda facts: replace(facts, reason=facts.reason or "NodeLost"),
    "evicted": lambda facts: (
        facts if facts.reason else replace(facts, reason="Evicted", message="low on memory")
    ),
}


@every_finder
@given(facts=PODS, disruption=st.sampled_from(sorted(DISRUPTIONS)))
def test_more_evidence_of_a_disruption_never_makes_it_less_infrastructure(
    find: Finder, facts: PodFacts, disruption: str
) -> None:
    before, after = find(facts), find(DISRUPTIONS[disruption](facts))
    assert (before is None) == (after is None), "a disruption is not by itself the end of a pod"
    if before is not None and after is not None:
        assert is_infrastructure(after) or not is_infrastructure(before)
        assert is_infrastructure(after) or facts.reason, "what its containers say counts no more"


@given(facts=PODS, reason=REASONS, given_up=SETS_OF_REASONS)
def test_disruption_that_came_about_is_the_infrastructures_affair_whatever_else_is_said(
    facts: PodFacts, reason: str | None, given_up: frozenset[str]
) -> None:
    failure = find_failure(_with_condition(facts, reason), given_up_reasons=given_up)
    assert failure is None or is_infrastructure(failure)


@every_finder
@given(facts=PODS, phase=st.sampled_from(Phase))
def test_evidence_can_be_made_of_every_failure(find: Finder, facts: PodFacts, phase: Phase) -> None:
    failure = find(facts)
    if failure is None:
        return
    evidence = make_evidence(failure, classify(failure), phase)
    assert evidence.phase is phase
    assert all(evidence.reasons)
    assert evidence.exited_by_itself == failure.worker_exited_by_itself
    names = {container.name for container in evidence.containers}
    assert evidence.deciding_container is None or evidence.deciding_container in names
