# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which pod goes on being a task instance's launch when its scheduler has died."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from hypothesis import given
from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import CLOCK_SKEW, plan_adoption
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    Orphan,
    newest_first,
    task_key,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ContainerFacts,
    ContainerState,
    ContainerType,
    PodFacts,
    PodRef,
)

KEY = TaskInstanceKey("sales", "load", "manual__2026-03-01", 1, -1)
CREATED = datetime(2026, 3, 1, 8, tzinfo=UTC)


def orphan(key: TaskInstanceKey = KEY, *, state: str = "queued", hostname: str = "") -> Orphan:
    return Orphan(key=key, ti_id="ti-1", state=state, hostname=hostname, job_id=7)


def pod(
    name: str,
    *,
    number: int | str | None = 1,
    seconds: float | None = 0,
    ti_id: str | None = "ti-1",
    key: TaskInstanceKey | None = KEY,
) -> PodFacts:
    optional = {"airflow-resilience/launch-number": number, "airflow-resilience/task-instance-id": ti_id}
    annotations = {name: str(value) for name, value in optional.items() if value is not None}
    if key:
        annotations |= {name: str(value) for name, value in key._asdict().items() if value != -1}
    created = None if seconds is None else CREATED + timedelta(seconds=seconds)
    labels = {"airflow-worker": "7"}
    return PodFacts(PodRef("airflow", name, f"uid-{name}"), labels, annotations, created=created)


def plan(*pods: PodFacts, of: Orphan | None = None) -> tuple[str | None, list[str]]:
    """Return the names of the pod that is adopted and of those that are superseded."""
    of = of or orphan()
    found = plan_adoption({of.key: of}, pods)
    current = found.current.get(of.key)
    return current and current.ref.name, [item.ref.name for key, item in found.superseded if key == of.key]


# ------------------------------------------------------------------------------------------------- the newest


def test_only_pod_is_adopted() -> None:
    assert plan(pod("a")) == ("a", [])


def test_newest_launch_is_adopted_and_the_others_are_superseded() -> None:
    assert plan(pod("a", number=1), pod("c", number=3, seconds=90), pod("b", number=2, seconds=40)) == (
        "c",
        ["b", "a"],
    )


def test_number_decides_within_the_same_second() -> None:
    assert plan(pod("b", number=2), pod("a", number=1)) == ("b", ["a"])
    assert plan(pod("a", number=9), pod("b", number=10)) == ("b", ["a"])


def test_later_phase_begins_again_with_the_first_launch() -> None:
    # The pod that resumes a deferred task, beside a kept one of the phase before.
    assert plan(pod("a", number=2), pod("b", number=1, seconds=600)) == ("b", ["a"])


def test_pod_of_unknown_age_is_the_oldest() -> None:
    assert plan(pod("b", seconds=None, number=5), pod("a", number=1)) == ("a", ["b"])


def test_pod_of_the_official_executor_is_adopted() -> None:
    assert plan(pod("a", number=None, ti_id=None)) == ("a", [])


# ------------------------------------------------------------------------------------------ who won the start


@pytest.mark.parametrize("hostname", ["a", "a.airflow.pod.cluster.local"])
def test_pod_in_which_the_task_runs_comes_before_a_newer_one(hostname: str) -> None:
    older, newer = pod("a"), pod("b", number=2, seconds=40)
    assert plan(older, newer, of=orphan(state="running", hostname=hostname)) == ("a", ["b"])


@pytest.mark.parametrize("state", ["running", "restarting"])
@pytest.mark.parametrize("hostname", ["", "node-1", "10.0.0.7"])
def test_nothing_is_superseded_if_it_cannot_be_told_where_the_task_runs(hostname: str, state: str) -> None:
    older, newer = pod("a"), pod("b", number=2, seconds=40)
    assert plan(older, newer, of=orphan(state=state, hostname=hostname)) == ("b", [])


FAILED_WORKER = ContainerFacts("base", ContainerType.WORKER, ContainerState.TERMINATED, exit_code=1)


@pytest.mark.parametrize(
    "end",
    [{"phase": "Failed"}, {"phase": "Running", "restart_policy": "Never", "containers": (FAILED_WORKER,)}],
    ids=["alone", "beside a sidecar"],
)
def test_of_pods_in_which_it_may_run_a_living_one_is_adopted(end: dict[str, Any]) -> None:
    living, failed = pod("a"), replace(pod("b", number=2, seconds=40), **end)
    assert plan(living, failed, of=orphan(state="running", hostname="node-1")) == ("a", [])


def test_pod_with_another_address_is_superseded() -> None:
    addresses = {"a": "10.0.0.1", "b": "10.0.0.2", "c": ""}
    pods = [replace(pod(name, seconds=len(name)), addresses=text) for name, text in addresses.items()]
    assert plan(*pods, of=orphan(state="running", hostname="10.0.0.1")) == ("a", ["c", "b"])
    assert plan(*pods[1:], of=orphan(state="running", hostname="10.0.0.1")) == ("c", ["b"])


def test_task_instance_with_more_than_one_pod_is_noted() -> None:
    of = orphan(state="running", hostname="a")
    assert plan_adoption({KEY: of}, [pod("a"), pod("b")]).shared.keys() == {KEY}
    assert plan_adoption({KEY: of}, [pod("a")]).shared == {}


def test_task_that_was_cleared_while_it_ran_is_known_by_its_former_id() -> None:
    of = replace(orphan(state="restarting"), ti_id="ti-2", former_id="ti-1")
    assert plan(pod("a"), of=of) == ("a", [])
    assert plan(pod("a", ti_id="ti-2"), of=of) == (None, [])


def test_pod_of_an_earlier_phase_is_no_launch_of_a_task_that_is_queued_again() -> None:
    assert plan(pod("a"), pod("b", seconds=40), of=orphan(hostname="a")) == ("b", [])
    assert plan(pod("a"), of=orphan(hostname="a")) == (None, [])


def test_pod_that_has_the_name_of_an_earlier_one_is_a_launch_of_its_own_until_it_has_started() -> None:
    """An override may give each try and each phase of a task the same name."""
    of = replace(orphan(hostname="a"), scheduled_dttm=CREATED + timedelta(seconds=1) + CLOCK_SKEW)
    later = pod("a", seconds=40)
    assert plan(later, of=of) == ("a", [])
    assert plan(replace(later, phase="Running"), of=of) == (None, [])
    assert plan(pod("a"), of=of) == (None, [])


def test_pod_of_the_official_executor_of_another_deployment_is_left_alone() -> None:
    theirs = pod("a", number=None, ti_id=None)
    assert plan(replace(theirs, labels={"airflow-worker": "8"})) == (None, [])


def test_order_without_a_host_is_by_age() -> None:
    names = [item.ref.name for item in newest_first([pod("a"), pod("b", seconds=5)], None)]
    assert names == ["b", "a"]


# ----------------------------------------------------------------------------------- not these task instances


@pytest.mark.parametrize(
    "stranger",
    [
        pod("x", key=KEY._replace(task_id="other")),
        pod("x", key=KEY._replace(try_number=2)),
        pod("x", key=KEY._replace(map_index=0)),
        pod("x", ti_id="ti-of-its-life-before-it-was-cleared"),
        pod("x", key=None),
    ],
    ids=["other task", "other try", "other map index", "cleared since", "no annotations"],
)
def test_pod_of_something_else_is_left_alone(stranger: PodFacts) -> None:
    assert plan(stranger) == (None, [])
    assert plan(stranger, pod("a")) == ("a", [])


def test_task_instances_do_not_mix() -> None:
    keys = [KEY._replace(map_index=index) for index in (0, 1)]
    found = plan_adoption(
        {key: orphan(key) for key in keys},
        [pod(f"p{index}{number}", key=keys[index], number=number) for index in (0, 1) for number in (1, 2)],
    )
    assert {key.map_index: facts.ref.name for key, facts in found.current.items()} == {0: "p02", 1: "p12"}
    assert [(key.map_index, facts.ref.name) for key, facts in found.superseded] == [(0, "p01"), (1, "p11")]


# ------------------------------------------------------------------------------------------------ annotations


@pytest.mark.parametrize("map_index", [-1, 0, 12])
def test_key_is_read_back(map_index: int) -> None:
    key = KEY._replace(map_index=map_index, try_number=3)
    assert task_key(pod("a", key=key).annotations) == key


@pytest.mark.parametrize("missing", ["dag_id", "task_id", "run_id", "try_number"])
def test_key_without_one_of_its_parts_is_none(missing: str) -> None:
    annotations = dict(pod("a").annotations)
    del annotations[missing]
    assert task_key(annotations) is None


@pytest.mark.parametrize("name", ["try_number", "map_index"])
@pytest.mark.parametrize("value", ["", "one", "1.5", "None"])
def test_key_with_a_number_that_is_none_is_none(name: str, value: str) -> None:
    assert task_key({**pod("a").annotations, name: value}) is None


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("12", 12), (None, 1), ("", 1), ("-3", 1), ("two", 1), ("1.5", 1)]
)
def test_launch_number_is_one_unless_the_pod_says_otherwise(text: str | None, number: int) -> None:
    assert pod("a", number=text).launch_number == number


# ------------------------------------------------------------------------------------------------- properties

PODS = st.lists(
    st.builds(
        pod,
        name=st.uuids().map(str),
        number=st.none() | st.integers(min_value=1, max_value=20),
        seconds=st.none() | st.integers(min_value=0, max_value=3),
        ti_id=st.sampled_from([None, "ti-1", "another"]),
        key=st.sampled_from([None, KEY, KEY._replace(try_number=2)]),
    ),
    max_size=6,
)


@given(pods=PODS, data=st.data())
def test_each_pod_has_one_fate_and_the_order_of_the_list_none(
    pods: list[PodFacts], data: st.DataObject
) -> None:
    found = plan_adoption({KEY: orphan()}, pods)
    chosen = [*found.current.values(), *(item for _, item in found.superseded)]
    ours = [
        item
        for item in pods
        if task_key(item.annotations) == KEY
        and item.annotations.get("airflow-resilience/task-instance-id", "ti-1") == "ti-1"
    ]
    assert sorted(item.ref.name for item in chosen) == sorted(item.ref.name for item in ours)
    again = plan_adoption({KEY: orphan()}, data.draw(st.permutations(pods)))
    ages = [(item.created, item.launch_number) for item in found.current.values()]
    assert ages == [(item.created, item.launch_number) for item in again.current.values()]


def test_unreadable_pod_is_left_out_and_the_plan_says_whose_it_is() -> None:
    nobody, ours = (
        replace(pod("x"), annotations=Unreadable(uuid=None)),
        replace(pod("y"), annotations=Unreadable(uuid="ti-2")),
    )
    found = plan_adoption({KEY: orphan()}, [nobody, ours, pod("a")])
    assert (found.current[KEY].ref.name, found.unreadable) == ("a", {None, "ti-2"})
    assert plan_adoption({KEY: orphan()}, [pod("a")]).unreadable == set()


class Unreadable(dict[str, str]):
    """Annotations that cannot be read, but for a task instance's UUID."""

    def __init__(self, *, uuid: str | None) -> None:
        super().__init__()
        self.uuid = uuid

    def __getitem__(self, name: str) -> str:
        raise RuntimeError(name)

    def get(self, name: str, default: Any = None) -> Any:
        if self.uuid is None:
            raise RuntimeError(name)
        return self.uuid


# ------------------------------------------------------------------------------------ workers that have ended


def test_a_pod_that_has_succeeded_is_a_launch_only_if_the_task_is_said_to_run_in_it() -> None:
    done = replace(pod("a"), phase="Succeeded", addresses="10.0.0.5")
    runs_here = orphan(state="running", hostname="a")
    for of, current in (
        (orphan(), None),
        (orphan(hostname="10.0.0.5"), None),
        (orphan(state="running", hostname="b"), None),
        (runs_here, "a"),
    ):
        found = plan_adoption({of.key: of}, [done]).current.get(of.key)
        assert (found and found.ref.name) == current


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_worker_that_is_done_beside_a_sidecar_is_no_launch_of_a_task_that_is_queued(phase: str) -> None:
    worker = ContainerFacts(
        "base", ContainerType.WORKER, ContainerState.TERMINATED, exit_code=0, started=True
    )
    done = replace(pod("a"), phase=phase, restart_policy="OnFailure", containers=(worker,))
    for of, current in (
        (orphan(hostname="10.0.0.5"), None),
        (orphan(state="running", hostname="a"), "a"),
        (orphan(state="running", hostname="10.0.0.5"), "a"),
    ):
        found = plan_adoption({of.key: of}, [done]).current.get(of.key)
        assert (found and found.ref.name) == current


def test_a_pod_that_has_failed_is_a_launch_of_a_queued_task_only_if_created_since_it_was_scheduled() -> None:
    """A worker that Airflow took back as stuck in queued is refused, and fails when the task waits again."""
    of = replace(orphan(), scheduled_dttm=CREATED + timedelta(seconds=5) + CLOCK_SKEW)
    before, since = (replace(pod("a", seconds=seconds), phase="Failed") for seconds in (4, 5))
    assert plan(before, of=of) == (None, [])
    assert plan(since, of=of) == ("a", [])
    assert plan(pod("a", seconds=4), of=of) == ("a", [])  # it can still start


def test_a_pod_of_before_a_loss_is_neither_a_launch_nor_superseded() -> None:
    of = replace(orphan(), replaced_ids=frozenset({"ti-0"}))
    lost = pod("a", ti_id="ti-0")
    found = plan_adoption({of.key: of}, [lost, pod("b")])
    assert (found.current[of.key].ref.name, found.superseded) == ("b", [])
    assert found.replaced == [(of.key, lost)]
