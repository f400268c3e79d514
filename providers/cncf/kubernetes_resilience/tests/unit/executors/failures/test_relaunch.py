# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A pod ended while its task instance was still queued: it is launched again, and nobody notices."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import time_machine

from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
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
    ("like", "keep"),
    [(m.start_error(), "mark_done"), (m.lingering(), "stop_and_keep")],
    ids=["alone", "beside"],
)
@pytest.mark.parametrize(
    ("delete", "on_failure", "is_kept"),
    [("True", "False", True), ("True", "True", False), ("False", "True", True)],
)
def test_the_dead_pod_is_kept_or_deleted_as_configured(
    start, queued_ti, like, keep, delete, on_failure, is_kept
):
    """What runs beside its worker does not run on."""
    harness = start(
        KUBERNETES_EXECUTOR__DELETE_WORKER_PODS=delete,
        KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE=on_failure,
    )
    pod = harness.launch(queued_ti())
    harness.observe(pod, like)
    harness.wait(SIDECAR_GRACE)
    harness.quiet()
    (function, args) = harness.runtime.commands[-1]
    assert (function.__name__, args) == (keep if is_kept else "clean_up", (pod.ref,))


def test_the_time_in_the_queue_begins_anew(harness, queued_ti):
    ti = queued_ti()
    now = datetime(2026, 5, 1, tzinfo=UTC)
    first = harness.launch(ti)
    assert harness.row(ti).queued_dttm == QUEUED_AT
    with time_machine.travel(now, tick=False):
        harness.observe(first, m.start_error())
    assert harness.row(ti).queued_dttm == now
