# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What holds for every pod that there can be, however unlikely."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    PodFailure,
    find_failure,
    find_obstacle,
    find_silent_exit,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ConditionFacts,
    ContainerFacts,
    ContainerType,
    PodFacts,
)

from ....support.strategies import FAILED_CONTAINERS, PODS, SETS_OF_REASONS


@given(facts=PODS, gone=st.booleans(), given_up=SETS_OF_REASONS)
def test_every_failure_can_be_described(facts: PodFacts, gone: bool, given_up: frozenset[str]) -> None:
    failure = find_failure(facts, gone=gone, given_up_reasons=given_up)
    overdue = PodFailure(DELETION_OVERDUE, facts, alive=True)
    for found in (failure, find_obstacle(facts), overdue, find_silent_exit(facts)):
        if found is not None:
            assert f"reason {found.reason}" in str(found)


@given(facts=PODS, containers=st.lists(FAILED_CONTAINERS, min_size=2, max_size=4))
def test_native_sidecar_decides_only_if_nothing_else_failed(
    facts: PodFacts, containers: list[ContainerFacts]
) -> None:
    failure = find_failure(replace(facts, phase="Failed", containers=tuple(containers)))
    if failure.container.type is ContainerType.SIDECAR and failure.container.before_worker:
        assert all(item.type is ContainerType.SIDECAR and item.before_worker for item in containers)


@given(facts=PODS)
def test_only_a_pod_whose_worker_has_not_started_has_an_obstacle(facts: PodFacts) -> None:
    waits = facts.phase in ("Pending", "Running") and facts.may_start and not facts.lingers
    assert (find_obstacle(facts) is not None) == waits


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
    # Where the worker has ended beside something that runs on, the pod runs, and the worker will not.
    can_start = not gone and not facts.is_terminal and not facts.has_lost_worker
    assert failure is None or failure.alive == can_start


@given(
    facts=PODS,
    gone=st.booleans(),
    given_up=SETS_OF_REASONS,
    reason=st.none() | st.just("DeletionByTaintManager"),
    status=st.sampled_from(["True", "False", "Unknown"]),
)
def test_disruption_only_ever_excuses_and_only_if_it_is_true(
    facts: PodFacts, gone: bool, given_up: frozenset[str], reason: str | None, status: str
) -> None:
    condition = ConditionFacts("DisruptionTarget", status, reason)
    disrupted = replace(facts, conditions=(*facts.conditions, condition))
    before = find_failure(facts, gone=gone, given_up_reasons=given_up)
    after = find_failure(disrupted, gone=gone, given_up_reasons=given_up)
    assert (before is None) == (after is None), "a disruption is not by itself the end of a pod"
    if before is None or after is None:
        return
    if status == "True":
        assert not after.worker_exited_by_itself
    else:
        assert after == replace(before, facts=disrupted)
