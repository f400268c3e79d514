# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What becomes of launches whose pod is not created, and of those that cannot be acted on."""

from __future__ import annotations

import pytest

from airflow import settings
from airflow.providers.cncf.kubernetes_resilience.executors import isolation
from airflow.providers.cncf.kubernetes_resilience.executors.actions import Actions
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Release,
    Settled,
    Situation,
    Step,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, Waiting
from airflow_resilience.propagation import audit

from ...support import manifests as m
from ...support.harness import database_away


@pytest.fixture
def not_launched(harness, queued_ti, monkeypatch):
    """Give task instances: no pod can be built, it was marked, another worker runs it, it is handed back."""

    def fail(pod):
        raise ValueError("a broken hook")

    monkeypatch.setattr(settings, "pod_mutation_hook", fail)
    tis = queued_ti(mapped=4)
    for ti in tis[:3]:
        harness.queue(ti)
    harness.set_state(tis[1], "failed")
    harness.set_state(tis[2], "running", hostname="another-pod")
    orphan = tis[3]
    harness.executor.running.add(orphan.key)
    harness.registry.make_current(Launch(orphan.key, str(orphan.id), waiting=Waiting(job=None)))
    return tis


def held(harness, tis):
    registry = harness.registry
    return [ti.map_index for ti in tis if registry.get(ti.key) or harness.occupied(ti)]


def reported(harness):
    return {key.map_index: state for key, (state, _) in harness.events().items()}


def test_what_is_not_launched_is_released_and_only_what_has_failed_is_reported(harness, not_launched):
    harness.executor.heartbeat()
    assert (held(harness, not_launched), reported(harness)) == ([], {0: "failed"})
    assert harness.row(not_launched[3]).state == "scheduled"


def test_a_failure_that_cannot_be_stored_keeps_no_other_launch(harness, not_launched):
    with database_away(audit, "record_unlaunched"):
        harness.executor.heartbeat()
    assert (held(harness, not_launched), reported(harness)) == ([0], {})
    assert harness.row(not_launched[3]).state == "scheduled"
    harness.requeue(not_launched[3])
    assert (held(harness, not_launched), reported(harness)) == ([], {0: "failed", 3: "failed"})


@pytest.mark.parametrize("odd", [0, 1, 2, 3])
def test_one_that_cannot_be_released_keeps_no_other(harness, not_launched, monkeypatch, odd):
    retract = Actions._retract

    def fail(self, key):
        if key.map_index == odd:
            raise RuntimeError("a bug")
        retract(self, key)

    monkeypatch.setattr(Actions, "_retract", fail)
    harness.executor.heartbeat()
    assert held(harness, not_launched) == [odd]
    assert reported(harness) == ({} if odd == 0 else {0: "failed"})
    for _ in range(isolation.ATTEMPTS):
        harness.wait(isolation.RETRY_BACKOFF.maximum)
    assert held(harness, not_launched) == []


@pytest.mark.parametrize(
    ("step", "situation", "is_kept"),
    [
        (Release("another has it", leaves_pod=True), Situation.UNCHECKED, False),
        (Release("another has it", leaves_pod=True), Situation.ENDED, False),
        (Step.CANCEL, Situation.UNCHECKED, False),
        (Step.FOLLOW, Situation.CREATION_DUE, False),
        (Step.RELABEL, Situation.RELABELLED, False),
        (Step.REPLACE, Situation.TOKEN_EXPIRED, True),
    ],
)
def test_a_pod_that_cannot_be_acted_on_is_left_and_nothing_is_reported(
    harness, launched, step, situation, is_kept
):
    ti, pod = launched
    harness.observe(pod, m.starting())
    cannot_act(harness, ti, step, situation)
    harness.quiet()
    assert [harness.runtime.take(name) for name in ("delete", "clean_up", "mark_done")] == [[], [], []]
    assert harness.events() == {}
    assert (held(harness, [ti]) != [], harness.occupied(ti)) == (is_kept, is_kept)


@pytest.mark.parametrize("step", [Step.CREATE, Step.CREATE_LATER])
@pytest.mark.parametrize(("state", "events"), [("queued", {-1: "failed"}), ("running", {})])
def test_a_creation_that_cannot_be_repeated_fails_what_no_worker_runs(
    harness, queued_ti, step, state, events
):
    ti = queued_ti()
    harness.call_for(ti)
    launch = harness.registry.get(ti.key)
    launch.creation.next_attempt, launch.calls = None, 0
    harness.set_state(ti, state)
    cannot_act(harness, ti, step, Situation.CREATION_DUE)
    for _ in range(2):
        harness.wait(300)
    assert (reported(harness), held(harness, [ti])) == (events, [])


def cannot_act(harness, ti, step, situation):
    launch = harness.registry.get(ti.key)
    harness.parts.actions.cannot_act(Settled(launch, step, situation), RuntimeError("a bug"))
