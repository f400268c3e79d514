# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How a launch has ended, by what is known of its pod and by the clock."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from hypothesis import given
from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import (
    DELETION_MARGIN,
    SIDECAR_GRACE,
    Limits,
    find_end,
    note_deadlines,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Lasting, Launch
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, read_pod

from ....support import manifests as m
from ....support.strategies import PODS

LIMITS = Limits(frozenset({"ErrImagePull"}), unschedulable_timeout=60.0, pending_timeout=600.0)
DELETED_WHILE = {
    "starting": m.pod("Pending", [m.base(m.CREATING)], deleted=True),
    "running": m.pod("Running", [m.base(m.running())], deleted=True),
}


def launch_of(facts: PodFacts | dict[str, Any] | None, **known: Any) -> Launch:
    facts = read_pod(facts) if isinstance(facts, dict) else facts
    launch = Launch(TaskInstanceKey("dag", "task", "run", 1, -1), "ti-id", facts=facts, **known)
    note_deadlines(launch, 0.0, LIMITS, is_away=False)
    return launch


def reason_of(launch: Launch, now: float = 0.0) -> str | None:
    """Return the reason of a launch's end, "success" if it has none, and None if the launch goes on."""
    end = find_end(launch, now, LIMITS)
    if end is None:
        return None
    return end.failure.reason if end.failure else "success"


@pytest.mark.parametrize(
    ("pod", "seconds", "reason"),
    [
        (m.succeeded(), 0, "success"),
        (m.start_error(), 0, "StartError"),
        (m.image_pull_error(), 0, "ErrImagePull"),
        (m.lingering(), SIDECAR_GRACE, "Error"),
        (m.lingering(m.terminated(0)), SIDECAR_GRACE, "success"),
        (m.unschedulable(), LIMITS.unschedulable_timeout, "Unschedulable"),
        (m.starting(), LIMITS.pending_timeout, "ContainerCreating"),
        (DELETED_WHILE["starting"], 30 + DELETION_MARGIN, "DeletionOverdue"),
        (DELETED_WHILE["running"], 30 + DELETION_MARGIN, "DeletionOverdue"),
        (m.alive(), inf, None),
        (m.gated(), inf, None),
    ],
)
def test_a_pod_has_ended_at_once_or_when_its_state_has_lasted(pod, seconds, reason):
    launch = launch_of(pod)
    assert reason_of(launch, seconds) == reason
    if seconds:
        assert reason_of(launch, min(seconds - 0.1, 10_000)) is None


def test_the_more_certain_end_wins():
    given_up = PodFailure(reason="told before", facts=read_pod(m.starting()), alive=True)
    pod = m.pod("Pending", [m.base(m.waiting("ErrImagePull"))], deleted=True)
    launch = launch_of(pod, is_gone=True, is_silent=True, given_up=given_up)
    found = []

    def without(**known: Any) -> None:
        found.append(reason_of(launch, 10_000))
        for name, value in known.items():
            setattr(launch, name, value)

    without(is_gone=False)
    without(is_silent=False)
    without(facts=replace(launch.facts, containers=()))
    without(given_up=None)
    without(deadlines={Lasting.PENDING: 0.0})
    without()
    less_certain = ["ErrImagePull", "told before", "DeletionOverdue", "Pending"]
    assert found == ["Deleted", "HeartbeatTimeout", *less_certain]


@given(facts=PODS)
def test_a_pod_that_is_gone_stays_gone_whatever_is_seen_late(facts):
    end = find_end(launch_of(facts, is_gone=True), 0.0, LIMITS)
    assert end is not None
    assert end.failure is None or not end.failure.alive


@given(seen=st.lists(st.tuples(PODS, st.floats(0, 100)), min_size=1))
def test_no_other_change_of_the_pod_postpones_the_end_of_a_state_that_lasts(seen):
    launch, now, expected = launch_of(None), 0.0, {}
    seconds_of = {
        Lasting.WORKER: SIDECAR_GRACE,
        Lasting.UNSCHEDULABLE: LIMITS.unschedulable_timeout,
        Lasting.PENDING: LIMITS.pending_timeout,
    }
    for facts, seconds in seen:
        now += seconds
        launch.facts = facts
        note_deadlines(launch, now, LIMITS, is_away=False)
        grace = facts.deletion_grace_seconds + DELETION_MARGIN
        latest = {state: now + seconds_of.get(state, grace) for state in launch.deadlines}
        expected = {state: min(expected.get(state, inf), latest[state]) for state in launch.deadlines}
        assert launch.deadlines == expected


def test_a_pod_that_does_not_start_has_its_time_after_an_outage():
    launch = launch_of(m.unschedulable())
    note_deadlines(launch, 50.0, LIMITS, is_away=True)
    assert reason_of(launch, 109.9) is None
    assert reason_of(launch, 110.0) == "Unschedulable"


def test_an_outage_is_no_excuse_for_a_worker_that_has_ended():
    launch = launch_of(m.lingering())
    note_deadlines(launch, 20.0, LIMITS, is_away=True)
    assert reason_of(launch, SIDECAR_GRACE) == "Error"


@pytest.mark.parametrize(
    ("like", "end"), [(m.lingering(), "Error"), (m.lingering(m.COMPLETED), "success")], ids=["failed", "done"]
)
def test_a_worker_that_has_ended_beside_a_sidecar_is_not_silent(like, end):
    launch = launch_of(like, is_silent=True)
    assert reason_of(launch, SIDECAR_GRACE - 1) is None
    assert reason_of(launch, SIDECAR_GRACE) == end


def test_a_worker_that_is_done_has_succeeded_whatever_was_decided_about_its_start():
    given_up = PodFailure(reason="told before", facts=read_pod(m.starting()), alive=True)
    launch = launch_of(m.lingering(m.COMPLETED), given_up=given_up)
    assert reason_of(launch, SIDECAR_GRACE - 1) == "told before"
    assert reason_of(launch, SIDECAR_GRACE) == "success"


def test_a_pod_that_nobody_has_seen_has_not_ended():
    launch = launch_of(None, is_silent=True)
    note_deadlines(launch, 0.0, LIMITS, is_away=True)
    assert find_end(launch, inf, LIMITS) is None
