# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which pod counts for which task instance, and which superseded pods are waited for."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from airflow.executors.workloads import ExecuteTask
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from kubernetes.client import V1Pod

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Creation,
    Deletion,
    Launch,
    LaunchState,
    Waiting,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import (
    IllegalTransitionError,
    LaunchRegistry,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.workload import StoredWorkload
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import DeletePod

KEY = TaskInstanceKey("sales", "load", "manual__2026-03-01", 1, -1)
OTHER = KEY._replace(map_index=3)

REF = PodRef("airflow", "load", "uid-1")
UNCONDITIONAL = DeletePod(PodRef("airflow", "load", "uid-2"))
VERSIONED = DeletePod(REF, "7")


def launch(key: TaskInstanceKey = KEY, **more: object) -> Launch:
    creation = None if "ref" in more else Creation({"kind": "Pod"}, "token")
    return Launch(key, "ti", "airflow", "load", creation=creation, **more)


def pod(uid: str, of: Launch | None = None) -> PodFacts:
    annotations = {"airflow-resilience/launch-id": of.launch_id} if of else {}
    return PodFacts(PodRef("airflow", "load", uid), {}, annotations)


@pytest.fixture
def registry() -> LaunchRegistry:
    return LaunchRegistry()


def make_workload(dag_version_id: uuid.UUID) -> ExecuteTask:
    ti = {
        **KEY._asdict(),
        "id": str(uuid.uuid4()),
        "dag_version_id": str(dag_version_id),
        "pool_slots": 2,
        "queue": "large",
        "priority_weight": 7,
        "context_carrier": {"traceparent": "00-1-2-00"},
    }
    return ExecuteTask.model_validate(
        {
            "token": "made when the task was queued",
            "ti": ti,
            "dag_rel_path": "sales.py",
            "bundle_info": {"name": "dags", "version": "4"},
            "log_path": "sales/load.log",
        }
    )


def test_recipe_is_the_job_without_its_token() -> None:
    workload = make_workload(uuid.uuid4())
    before, ti_id = workload.model_copy(deep=True), str(workload.ti.id)
    job = KubernetesJob(KEY, [workload], V1Pod(), "template.yaml", "airflow:7")
    restored = StoredWorkload.of(job).job(KEY, ti_id)
    assert restored.command[0].model_copy(update={"token": workload.token}) == workload
    assert restored._replace(command=None) == job._replace(command=None)
    assert workload == before, "the job is left as it was"


def test_recipe_does_not_keep_the_uuid_that_the_launch_has() -> None:
    jobs = (KubernetesJob(KEY, [make_workload(uuid.UUID(int=7))], None, None, None) for _ in range(2))
    first, second = map(StoredWorkload.of, jobs)
    assert first == second


def test_launch_is_pending_until_its_pod_is_seen_to_start(registry: LaunchRegistry) -> None:
    created, adopted = launch(), launch(OTHER, ref=PodRef("airflow", "load", "uid-2"))
    registry.make_current(created)
    registry.make_current(adopted)
    pending = partial(registry.in_state, LaunchState.PENDING)
    assert pending() == [adopted], "what does not exist yet is not pending"
    registry.bind(created, PodRef("airflow", "load", "uid-1"))
    assert set(map(id, pending())) == {id(created), id(adopted)}
    for phase, number in ((None, 2), ("Pending", 2), ("Running", 1), ("Running", 1)):
        registry.see(created, replace(pod("uid-1"), phase=phase))
        assert len(pending()) == number
    registry.bind(created, PodRef("airflow", "load", "uid-3"))
    assert len(pending()) == 2, "another pod of it has come to light"
    registry.release(KEY)
    registry.release(OTHER)
    assert pending() == []


def test_reading_brings_the_identity_that_is_kept(registry: LaunchRegistry) -> None:
    created = launch()
    registry.make_current(created)
    registry.bind(created, PodRef("airflow", "load", "uid-1"))
    registry.see(created, seen := pod("uid-1"))
    assert created.ref is seen.ref, "the informer has it too, and one is enough"
    assert registry.current("uid-1") is created
    registry.see(created, another := pod("uid-2"))
    assert (registry.current("uid-1"), registry.current("uid-2")) == (None, created)
    assert created.ref is another.ref


def test_released_launch_is_not_asked_about_for_its_label(registry: LaunchRegistry) -> None:
    registry.make_current(held := launch(ref=REF))
    registry.note_relabelled(held, pod("uid-1"))
    assert registry.relabelled() == [held]
    registry.release(KEY)
    assert registry.relabelled() == []
    with pytest.raises(IllegalTransitionError):
        registry.note_relabelled(held, pod("uid-1"))


def test_launch_ids_are_unique() -> None:
    assert len({launch().launch_id for _ in range(100)}) == 100


# --------------------------------------------------------------------------------------------------- leaving


def leave(registry: LaunchRegistry, uid: str, deadline: float, **more: Any) -> Launch:
    """Have a launch depart that is not current any more."""
    item = launch(ref=PodRef("airflow", "load", uid))
    registry.supersede(item, Deletion(deadline, **more))
    return item


@pytest.mark.parametrize(
    ("accepted", "now"),
    [((50.0,), 50.0), ((50.0, 70.0), 50.0), ((70.0, 50.0), 50.0), ((400.0,), 400.0)],
    ids=["by its grace period", "once is enough", "the shortest grace period counts", "however long it is"],
)
def test_deadline_of_a_deletion_that_is_accepted(
    registry: LaunchRegistry, accepted: tuple[float, ...], now: float
) -> None:
    leave(registry, "uid-1", 300.0)
    (deletion,) = registry.deletions(KEY)
    for deadline in accepted:
        deletion.accept(deadline)
    assert not registry.is_clear(KEY, now - 0.1)
    assert registry.is_clear(KEY, now)


def test_superseded_launches_of_a_key_are_known_by_their_pods_and_by_themselves(
    registry: LaunchRegistry,
) -> None:
    given_up = leave(registry, "uid-1", 40.0, command=VERSIONED, unless_started=True)
    revoked = leave(registry, "uid-2", 40.0, command=UNCONDITIONAL)
    assert registry.departing_of(KEY) == [given_up, revoked]
    assert [item.may_come_back for item in (given_up, revoked)] == [True, False]
    assert registry.departing("uid-1") is registry.departing(given_up.launch_id) is given_up
    assert registry.pending_deletions() == [VERSIONED, UNCONDITIONAL]
    registry.deletions(KEY)[1].accept(50.0)
    assert registry.pending_deletions() == [VERSIONED]
    registry.gone("uid-1")
    assert registry.departing("uid-1") is registry.departing(given_up.launch_id) is None
    assert registry.departing_of(KEY) == [revoked]


def test_a_launch_may_depart_by_another_deletion(registry: LaunchRegistry) -> None:
    item = leave(registry, "uid-1", 40.0, command=VERSIONED)
    registry.supersede(item, Deletion(90.0, UNCONDITIONAL))
    assert not registry.is_clear(KEY, now=50.0)
    assert registry.pending_deletions() == [UNCONDITIONAL]


def test_a_pod_is_one_launch_s(registry: LaunchRegistry) -> None:
    """A pod whose launch departs may be adopted: it is that launch's then, which may depart too."""
    first, adopted = launch(ref=REF), launch(ref=REF)
    registry.supersede(first, Deletion(10.0, UNCONDITIONAL))
    registry.make_current(adopted)
    assert (first.state, registry.departing_of(KEY)) == (None, [])
    for item in (first, adopted):
        registry.supersede(item, Deletion(10.0, UNCONDITIONAL))
        registry.release(KEY)
    assert registry.in_state(LaunchState.DEPARTING) == [adopted]
    registry.prune(10.0)
    assert registry.in_state(LaunchState.DEPARTING) == []


@pytest.mark.parametrize(
    "supersede", [LaunchRegistry.make_current, partial(LaunchRegistry.supersede, deletion=Deletion(9.0))]
)
def test_the_pod_of_an_open_call_may_be_another_launch_s(
    registry: LaunchRegistry, supersede: Callable[..., None]
) -> None:
    """Adoption has listed it before the call is answered."""
    cancelled = launch()
    registry.supersede(cancelled, Deletion(10.0))
    found = launch(ref=REF, facts=pod("uid-1", cancelled))
    supersede(registry, found)
    assert cancelled.deletion is None
    assert registry.departing_of(KEY) == ([found] if found.deletion else [])


def test_a_pod_of_an_open_call_is_known_once_it_was_seen(registry: LaunchRegistry) -> None:
    item, copied = launch(), pod("uid-2")
    registry.supersede(item, Deletion(10.0))
    assert registry.find_departing(pod("uid-1", item)) is item
    registry.supersede(item, Deletion(10.0, seen=copied.ref))
    registry.supersede(item, Deletion(10.0, seen=REF))
    assert registry.departing(REF.uid) is item
    assert registry.departing("uid-2") is None, "news of the first pod is no news of the second"
    registry.found(item, REF)
    registry.supersede(item, Deletion(10.0))
    assert registry.find_departing(pod("uid-1")) is item
    assert registry.find_departing(replace(copied, annotations=pod("uid-1", item).annotations)) is None
    registry.prune(10.0)
    assert registry.departing(REF.uid) is None


def test_what_has_not_started_is_known_with_and_without_a_pod(registry: LaunchRegistry) -> None:
    creating, created = launch(), launch(OTHER, ref=PodRef("airflow", "load", "uid-2"))
    registry.make_current(creating)
    registry.make_current(created)
    assert registry.starting() == [creating, created]
    registry.see(created, replace(pod("uid-2"), phase="Running"))
    assert registry.starting() == [creating]
    registry.end(creating, None, 0.0)
    assert registry.starting() == [creating], "it has not started, and may go on"


# --------------------------------------------------------------------------------------------------- states


def test_a_launch_goes_its_way_and_is_in_one_state_at_a_time(registry: LaunchRegistry) -> None:
    item = Launch(KEY, "ti", waiting=Waiting(job=None))

    def states() -> list[LaunchState]:
        return [state for state in LaunchState if item in registry.in_state(state)]

    assert item.state is None
    registry.make_current(item)
    assert states() == [item.state] == [LaunchState.WAITING]
    registry.create(item, Creation({}, "token"))
    assert states() == [item.state] == [LaunchState.CREATING]
    registry.bind(item, REF)
    assert states() == [item.state] == [LaunchState.PENDING]
    registry.see(item, replace(pod("uid-1"), phase="Running"))
    assert states() == [item.state] == [LaunchState.STARTED]
    registry.end(item, None, 0.0)
    assert states() == [item.state] == [LaunchState.ENDED]
    registry.supersede(item, Deletion(40.0))
    assert states() == [LaunchState.ENDED], "it is the current launch until it is released"
    registry.release(KEY)
    assert states() == [item.state] == [LaunchState.DEPARTING]
    registry.gone("uid-1")
    assert (states(), item.state) == ([], None)


def test_what_has_ended_may_go_on(registry: LaunchRegistry) -> None:
    item = launch(ref=REF)
    registry.make_current(item)
    registry.end(item, None, 0.0)
    registry.settled(item)
    assert item.state is LaunchState.PENDING


def test_what_was_released_before_its_end_was_settled_is_told_once(registry: LaunchRegistry) -> None:
    first, second = launch(ref=REF), launch(OTHER, ref=PodRef("airflow", "load", "uid-2"))
    for item in (first, second):
        registry.make_current(item)
        registry.end(item, None, 0.0)
        registry.release(item.key)
    registry.settled(second)
    assert registry.unsettled() == [first]
    registry.settled(first)
    assert registry.unsettled() == []


@pytest.mark.parametrize(
    ("waiting", "gives_way"),
    [
        (Waiting(job=None), True),
        (Waiting(KubernetesJob(KEY, [], None, None), is_relaunch=True), True),
        (Waiting(KubernetesJob(KEY, [], None, None)), False),
        (None, False),
    ],
    ids=["handed back", "relaunch", "next phase", "created"],
)
def test_a_replacement_gives_way_while_it_waits(waiting: Waiting | None, gives_way: bool) -> None:
    item = launch(ref=REF)
    assert Launch(KEY, "ti", waiting=waiting).gives_way_to(item) is gives_way
    assert not Launch(KEY, "another life", waiting=waiting).gives_way_to(item)


def test_what_is_taken_back_is_current_and_departs_no_more(registry: LaunchRegistry) -> None:
    item = launch(ref=REF)
    registry.make_current(item)
    registry.supersede(item, Deletion(40.0, unless_started=True))
    registry.make_current(Launch(KEY, "ti", waiting=Waiting(job=None)))
    assert item.state is LaunchState.DEPARTING
    registry.take_back(item, REF)
    assert (registry.get(KEY), item.state) == (item, LaunchState.PENDING)
    assert registry.is_clear(KEY, now=0.0)


def test_a_transition_that_is_not_allowed_is_an_error(registry: LaunchRegistry) -> None:
    item = Launch(KEY, "ti", waiting=Waiting(job=None))
    registry.make_current(item)
    with pytest.raises(IllegalTransitionError, match="from waiting to ended"):
        registry.end(item, None, 0.0)
    assert item.state is LaunchState.WAITING


def test_what_was_released_does_not_come_back_by_itself(registry: LaunchRegistry) -> None:
    item = launch(ref=REF)
    registry.make_current(item)
    registry.release(KEY)
    for step in (
        lambda: registry.see(item, pod("uid-1")),
        lambda: registry.end(item, None, 0.0),
        lambda: registry.bind(item, REF),
        lambda: registry.resume(item),
        lambda: registry.create(item, Creation({}, "token")),
    ):
        with pytest.raises(IllegalTransitionError, match="not the current one"):
            step()
    assert item.state is None
