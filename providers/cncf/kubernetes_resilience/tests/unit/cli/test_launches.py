# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.cli.launches import HeldTask, locate_launches
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action, Decision
from airflow_resilience.ledger import HeldLaunch, LaunchHistory, LedgerEntry
from airflow_resilience.outages import Dependency, DependencyKind

from ...support import manifests as m

NOW = datetime(2026, 3, 1, 8, 0, 45, tzinfo=UTC)
CREATED = datetime(2026, 3, 1, 8, tzinfo=UTC)
QUEUED = CREATED - timedelta(seconds=1)
STARTED = CREATED + timedelta(seconds=9)
KEY = TaskInstanceKey("sales", "load", "manual__2026-03-01T08:00:00+00:00", 1, -1)
TI_ID = "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"
OTHER_ID = "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0002"
SECOND = "sales-load-p3v8n1tc"


def task(state="queued", *entries, key=KEY, hostname=None, ti_id=TI_ID, former_id=None):
    history = LaunchHistory()
    for entry in entries:
        history.add(entry)
    started_at = None if state == "queued" else STARTED
    return HeldTask(
        row=TaskInstanceRow(ti_id, key, state, 7, hostname),
        queued_at=QUEUED,
        started_at=started_at,
        former_id=former_id,
        history=history,
    )


def failed(launch=1, action=Action.RELAUNCH, due=None, uid="gone", phase="Failed"):
    return LedgerEntry(
        ti_id=TI_ID,
        worker_uid=uid,
        worker_name=f"sales-load-{launch}",
        launch=launch,
        reason="Evicted",
        context=ExecutionContext(
            StateChangeCategory.INFRASTRUCTURE,
            StateChangeReason.WORKER_TERMINATION,
            ContextSource.EXECUTOR,
            {"node": m.NODE, "phase": phase},
        ),
        decision=Decision(action=action, policy="p", rule="r", explanation=f"launch {launch} of 4"),
        due=due,
    )


def seen(manifest, *, launch=1, name=m.NAME, **annotations):
    """A pod, with its name as its UID."""
    manifest["metadata"] |= {"name": name, "uid": name}
    manifest["metadata"]["annotations"] |= {"airflow-resilience/launch-number": str(launch), **annotations}
    return read_pod(manifest)


def locate(held, *pods):
    return [
        (launch.state, launch.number, launch.pod, launch.waits_for)
        for launch in locate_launches([held], pods, now=NOW)
    ]


# ------------------------------------------------------------------------------------------------ without pod


def test_first_launch_without_a_pod():
    assert locate(task()) == [("creating", 1, None, "no pod yet")]


def test_relaunch_that_is_not_due():
    entries = failed(1), failed(2, due=NOW + timedelta(seconds=39.2))
    assert locate(task("queued", *entries)) == [
        ("waiting", 3, None, "relaunch due in 40s: launch 2 of 4"),
    ]


@pytest.mark.parametrize("due", [None, NOW])
def test_relaunch_that_is_due(due):
    assert locate(task("queued", failed(due=due))) == [("creating", 2, None, "no pod yet")]


HELD = HeldLaunch(
    ti_id=TI_ID, dependency=Dependency(DependencyKind.REGISTRY, "docker.io"), away_since=CREATED
)


@pytest.mark.parametrize("was_lost_for_it", [False, True])
def test_launch_that_is_held(was_lost_for_it):
    lost = replace(failed(), dependency=HELD.dependency, away_since=CREATED)
    held = replace(task("queued", *([lost] if was_lost_for_it else [])), held=HELD)
    assert locate(held) == [
        ("held", 1 + was_lost_for_it, None, "registry/docker.io, away since 08:00 UTC"),
    ]


def test_launch_that_was_held_before_it_was_lost_otherwise():
    assert locate(replace(task("queued", failed()), held=HELD)) == [("creating", 2, None, "no pod yet")]


@pytest.mark.parametrize("action", [Action.COUNT, Action.FAIL])
def test_failure_that_airflow_has_not_heard_of(action):
    ((state, number, pod, waits_for),) = locate(task("queued", failed(2, action)))
    assert (state, number, pod) == ("ended", 2, "sales-load-2")
    assert waits_for == "its failure to be reported: launch 2 of 4"


@pytest.mark.parametrize("state", ["running", "restarting"])
def test_task_that_runs_and_has_no_pod(state):
    ((found, number, pod, waits_for),) = locate(task(state))
    assert (found, number, pod) == ("ended", None, None)
    assert "no pod of it is found" in waits_for


# ---------------------------------------------------------------------------------------------- the pod's way


@pytest.mark.parametrize(
    ("manifest", "waits_for"),
    [
        (m.unscheduled(), "Unschedulable: 0/3 nodes are available"),
        (m.starting(), "ContainerCreating"),
        (m.image_pull_error(), "ErrImagePull: "),
        (
            m.pod(containers=[m.base(m.PREPARING)], init=[m.status_of("git-sync", m.running())]),
            "init container git-sync is running",
        ),
        (m.pod(), "Pending"),
    ],
    ids=["no node", "container", "image", "init container", "nothing known"],
)
def test_pod_that_is_pending(manifest, waits_for):
    ((state, number, pod, words),) = locate(task(), seen(manifest))
    assert (state, number, pod) == ("pending", 1, m.NAME)
    assert words.startswith(f"pod is Pending: {waits_for}")


def test_pod_of_which_the_api_server_says_nothing_yet():
    assert locate(task(), seen(m.pod(phase=None))) == [("pending", 1, m.NAME, "pod is new")]


@pytest.mark.parametrize(
    ("state", "waits_for"),
    [
        ("queued", "its worker to report that the task has started"),
        ("running", None),
        ("restarting", "its worker to end: the task was cleared"),
    ],
)
def test_pod_that_has_started(state, waits_for):
    assert locate(task(state), seen(m.alive())) == [("started", 1, m.NAME, waits_for)]


def test_task_that_was_cleared_while_it_ran_is_known_by_its_former_id():
    held = task("restarting", ti_id=OTHER_ID, former_id=TI_ID)
    assert [found[:3] for found in locate(held, seen(m.alive()))] == [("started", 1, m.NAME)]


@pytest.mark.parametrize(
    ("state", "manifest", "reason"),
    [
        ("queued", m.evicted(), "Evicted"),
        ("queued", m.succeeded(), "ExitedWithoutStarting"),
        ("running", m.worker_error(), "Error"),
        ("running", m.succeeded(), "Succeeded"),
    ],
)
def test_pod_that_has_ended_and_is_not_settled(state, manifest, reason):
    found = [("ended", 1, m.NAME, f"its end to be settled: {reason}")]
    assert locate(task(state), seen(manifest)) == found


@pytest.mark.parametrize(
    ("manifest", "state"),
    [
        (m.pod("Pending", deleted=True), "pending"),
        (m.pod("Running", [m.base(m.running())], deleted=True), "started"),
    ],
)
def test_current_pod_that_is_being_deleted(manifest, state):
    words = "deletion asked for, grace period ends in 15s"
    assert locate(task(), seen(manifest)) == [(state, 1, m.NAME, words)]


def test_deletion_that_is_overdue():
    pod = seen(m.pod(deleted=True))
    (launch,) = locate_launches([task()], [pod], now=NOW + timedelta(minutes=1))
    assert launch.waits_for == "deletion asked for, grace period ended 45s ago"


# ------------------------------------------------------------------------------------------------- superseded


def test_earlier_launch_departs():
    old, new = seen(m.alive()), seen(m.starting(), launch=2, name=SECOND)
    assert locate(task("queued", failed(uid=m.NAME, phase="Running")), old, new) == [
        ("pending", 2, SECOND, "pod is Pending: ContainerCreating"),
        ("departing", 1, m.NAME, "its deletion, or its own end"),
    ]


def test_relaunch_waits_for_the_pod_before_it():
    old = seen(m.pod(deleted=True))
    assert locate(task("queued", failed(uid=m.NAME, phase="Pending")), old) == [
        ("waiting", 2, None, f"pod airflow/{m.NAME} to go"),
        ("departing", 1, m.NAME, "deletion asked for, grace period ends in 15s"),
    ]


def test_pod_that_has_started_after_it_was_given_up_is_the_current_launch():
    held = task("queued", failed(uid=m.NAME, phase="Pending"))
    assert [found[:3] for found in locate(held, seen(m.alive()))] == [("started", 1, m.NAME)]


def test_ended_pod_that_was_replaced_is_not_listed():
    held = task("queued", failed(uid=m.NAME, due=NOW + timedelta(seconds=5)))
    assert [found[0] for found in locate(held, seen(m.evicted()))] == ["waiting"]


def test_pod_of_an_earlier_try_departs_and_holds_nothing_up():
    held = task(key=KEY._replace(try_number=2), ti_id=OTHER_ID)
    assert [found[:3] for found in locate(held, seen(m.pod(deleted=True)))] == [
        ("creating", 1, None),
        ("departing", 1, m.NAME),
    ]


def test_pod_of_an_earlier_phase_departs_and_holds_nothing_up():
    held = task(hostname=m.NAME)
    assert [found[:3] for found in locate(held, seen(m.alive()))] == [
        ("creating", 1, None),
        ("departing", 1, m.NAME),
    ]


def test_pod_in_which_the_task_runs_is_the_current_launch_whatever_its_number():
    old, new = seen(m.alive()), seen(m.alive(), launch=2, name=SECOND)
    assert [found[:3] for found in locate(task("running", hostname=m.NAME), old, new)] == [
        ("started", 1, m.NAME),
        ("departing", 2, SECOND),
    ]


def test_each_pod_in_which_the_task_may_run_is_listed():
    old, new = seen(m.alive()), seen(m.alive(), launch=2, name=SECOND)
    found = locate(task("running", hostname="some-host"), old, new)
    assert {launch[:3] for launch in found} == {("started", 1, m.NAME), ("started", 2, SECOND)}


# --------------------------------------------------------------------------------------------------- the rest


def test_pods_of_other_tasks_are_left_out():
    other = seen(m.alive(), task_id="extract")
    unknown = seen(m.alive(), try_number="first")
    assert [found[0] for found in locate(task(), other, unknown)] == ["creating"]


def test_mapped_task_instances_are_told_apart():
    held = [
        task(key=KEY._replace(map_index=index), ti_id=ti_id) for index, ti_id in ((1, OTHER_ID), (0, TI_ID))
    ]
    pod = seen(m.alive(), map_index="0")
    located = locate_launches(held, [pod], now=NOW)
    assert [(launch.row.key.map_index, launch.state) for launch in located] == [
        (0, "started"),
        (1, "creating"),
    ]


@pytest.mark.parametrize(
    ("held", "pods", "since"),
    [
        (task(), [], QUEUED),
        (task(), [seen(m.starting())], CREATED),
        (task(), [seen(m.alive())], CREATED),
        (task("running"), [seen(m.alive())], STARTED),
        (task("running"), [seen(m.worker_error())], CREATED + timedelta(seconds=31)),
        (task("running"), [], None),
    ],
    ids=["creating", "pending", "started", "running", "ended", "gone"],
)
def test_since_when(held, pods, since):
    (launch,) = locate_launches([held], pods, now=NOW)
    assert launch.since == since


def test_departs_since_its_deletion_was_asked_for():
    held = task(key=KEY._replace(try_number=2))
    _, departing = locate_launches([held], [seen(m.pod(deleted=True))], now=NOW)
    assert departing.since == CREATED + timedelta(seconds=30)
