# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What holds for every pod that there can be, however unlikely."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.pods.classify import (
    PodFailure,
    find_failure,
    find_overdue_deletion,
    find_silent_exit,
    is_pre_execution_failure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ConditionFacts,
    ContainerFacts,
    ContainerState,
    ContainerType,
    PodFacts,
    PodRef,
)

REASONS = st.none() | st.sampled_from(
    ["Error", "Completed", "StartError", "OOMKilled", "ErrImagePull", "Evicted", "ProviderFailed", "Odd"]
)
MESSAGES = st.none() | st.sampled_from(["pull QPS exceeded", "manifest unknown"]) | st.text(max_size=20)
CONTAINERS = st.builds(
    ContainerFacts,
    name=st.sampled_from(["base", "statsd", "git-sync"]),
    type=st.sampled_from(ContainerType),
    state=st.sampled_from(ContainerState),
    reason=REASONS,
    message=MESSAGES,
    exit_code=st.none() | st.sampled_from([0, 1, 137, 143]),
    before_worker=st.booleans(),
)
CONDITIONS = st.builds(
    ConditionFacts,
    type=st.sampled_from(["Ready", "DisruptionTarget", "odd.example.com/Condition"]),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=REASONS | st.just("PreemptionByScheduler"),
    message=MESSAGES,
)
PODS = st.builds(
    PodFacts,
    ref=st.just(PodRef("airflow", "worker-abcd1234", "uid")),
    labels=st.just({}),
    annotations=st.just({}),
    deletion_timestamp=st.none() | st.datetimes(),
    node=st.none() | st.just("node-1"),
    phase=st.none() | st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", "Odd"]),
    reason=REASONS,
    message=MESSAGES,
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
    containers=st.lists(CONTAINERS, max_size=4).map(tuple),
)
SETS_OF_REASONS = st.frozensets(REASONS.filter(bool))


def infrastructure(failure: PodFailure | None, excluded: frozenset[str]) -> bool:
    return is_pre_execution_failure("failed", "queued", failure, excluded)


@given(facts=PODS, gone=st.booleans(), given_up=SETS_OF_REASONS, excluded=SETS_OF_REASONS)
@settings(max_examples=300)
def test_every_pod_can_be_classified_and_described(
    facts: PodFacts, gone: bool, given_up: frozenset[str], excluded: frozenset[str]
) -> None:
    failure = find_failure(facts, gone=gone, given_up_reasons=given_up)
    for found in (failure, find_overdue_deletion(facts), find_silent_exit(facts)):
        if found is not None:
            assert f"reason {found.reason}" in str(found)
            assert found.details()["reason"] == found.reason
            assert infrastructure(found, excluded) or found.worker_exited_by_itself


@given(facts=PODS, given_up=SETS_OF_REASONS)
def test_pod_that_is_gone_has_failed_unless_it_succeeded_and_is_not_alive(
    facts: PodFacts, given_up: frozenset[str]
) -> None:
    failure = find_failure(facts, gone=True, given_up_reasons=given_up)
    assert (failure is None) == (facts.phase == "Succeeded")
    assert failure is None or not failure.alive


@given(facts=PODS, gone=st.booleans(), given_up=SETS_OF_REASONS)
def test_pod_that_can_still_start_its_worker_counts_as_alive(
    facts: PodFacts, gone: bool, given_up: frozenset[str]
) -> None:
    failure = find_failure(facts, gone=gone, given_up_reasons=given_up)
    assert failure is None or failure.alive == (not gone and not facts.is_terminal)


@given(
    facts=PODS,
    gone=st.booleans(),
    given_up=SETS_OF_REASONS,
    excluded=SETS_OF_REASONS,
    reason=st.none() | st.just("DeletionByTaintManager"),
    status=st.sampled_from(["True", "False", "Unknown"]),
)
@settings(max_examples=300)
def test_disruption_only_ever_excuses_and_only_if_it_is_true(
    facts: PodFacts,
    gone: bool,
    given_up: frozenset[str],
    excluded: frozenset[str],
    reason: str | None,
    status: str,
) -> None:
    condition = ConditionFacts("DisruptionTarget", status, reason)
    disrupted = replace(facts, conditions=(*facts.conditions, condition))
    before = find_failure(facts, gone=gone, given_up_reasons=given_up)
    after = find_failure(disrupted, gone=gone, given_up_reasons=given_up)
    assert (before is None) == (after is None), "a disruption is not by itself the end of a pod"
    if before is None or after is None:
        return
    if status == "True":
        assert infrastructure(after, excluded)
    else:
        assert after == replace(before, facts=disrupted)
