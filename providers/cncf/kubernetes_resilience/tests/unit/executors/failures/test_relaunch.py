# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A pod ended while its task instance was still queued: it is launched again, and nobody notices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from cluster_lab.airflow_fixtures import QUEUED_AT

from ....support import manifests as m

DEATHS = {
    "out of memory": m.out_of_memory(),
    "deadline exceeded": m.deadline_exceeded(),
    "provider failed": m.provider_failed("Failed"),
    "init container that could not start": m.pod(
        "Failed", [m.base(m.PREPARING)], init=[m.status_of("git-sync", m.terminated(128, "StartError"))]
    ),
    "native sidecar": m.pod(
        "Failed",
        [m.base(m.PREPARING)],
        init=[m.status_of("vault", m.terminated(1, "Error"))],
        native_sidecars=("vault",),
    ),
    "exited without starting": m.succeeded(),
}


@pytest.mark.parametrize("like", DEATHS.values(), ids=DEATHS)
def test_it_is_relaunched(harness, launched, like):
    ti, first = launched
    slots = harness.executor.slots_available
    harness.observe(first, like)
    second = harness.created()

    assert second.name != first.name
    assert second.launch_number == 2
    assert harness.events() == {}
    assert (harness.occupied(ti), harness.executor.slots_available) == (True, slots)
    (entry,) = harness.ledger(ti)
    assert (entry["worker_uid"], entry["worker_name"]) == (first.ref.uid, first.name)
    assert (entry["action"], entry["launch"]) == ("relaunch", 1)
    row = harness.row(ti)
    assert (row.state, row.try_number, row.max_tries) == ("queued", 1, 0)
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(first.ref,)]
    assert harness.runtime.take("delete") == []


def test_one_warning_says_what_happened(harness, queued_ti, capsys):
    first = harness.launch(queued_ti())
    capsys.readouterr()
    harness.observe(first, m.start_error())
    (warning,) = [line for line in capsys.readouterr().out.splitlines() if "[warning" in line]
    for part in (first.name, "node-1", "StartError", "base", "exit code 128", "launch 1 of 2"):
        assert part in warning


@pytest.mark.parametrize(
    ("delete", "on_failure", "command"),
    [("True", "False", "mark_done"), ("True", "True", "clean_up"), ("False", "True", "mark_done")],
)
def test_the_dead_pod_is_kept_or_deleted_as_configured(start, queued_ti, delete, on_failure, command):
    harness = start(
        KUBERNETES_EXECUTOR__DELETE_WORKER_PODS=delete,
        KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE=on_failure,
    )
    first = harness.launch(queued_ti())
    harness.observe(first, m.start_error())
    harness.created()
    harness.quiet()
    assert [(function.__name__, args) for function, args in harness.runtime.commands[-1:]] == [
        (command, (first.ref,))
    ]


def test_the_relaunch_has_a_token_of_its_own(harness, queued_ti):
    ti = queued_ti()
    begin = datetime(2026, 5, 1, tzinfo=UTC)
    with time_machine.travel(begin, tick=False) as time:
        first = harness.launch(ti)
        time.shift(timedelta(seconds=500))
        harness.observe(first, m.start_error())
        second = harness.created()
    old, new = first.claims, second.claims
    assert new["exp"] - old["exp"] == 500
    assert new["sub"] == old["sub"] == str(ti.id)
    assert new["jti"] != old["jti"]


def test_the_time_in_the_queue_begins_anew(harness, queued_ti):
    ti = queued_ti()
    now = datetime(2026, 5, 1, tzinfo=UTC)
    first = harness.launch(ti)
    assert harness.row(ti).queued_dttm == QUEUED_AT
    with time_machine.travel(now, tick=False):
        harness.observe(first, m.start_error())
    assert harness.row(ti).queued_dttm == now


def test_the_relaunch_is_of_the_same_task(harness, launched):
    _, first = launched
    harness.observe(first, m.start_error())
    second = harness.created()
    for name in ("dag_id", "task_id", "run_id", "try_number", "airflow-resilience/task-instance-id"):
        assert second.annotations[name] == first.annotations[name]
    assert second.launch_id != first.launch_id
    assert second.workload["ti"] == first.workload["ti"]
