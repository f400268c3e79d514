# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How often a task is launched again, and what is left to its own retries."""

from __future__ import annotations

import pytest

from airflow_resilience.retry_policy.engine import IMMEDIATE_RELAUNCHES, MINIMUM_BACKOFF

from ....support import manifests as m
from ....support.harness import lock


def fail_until_reported(harness, ti, like, at_most: int = 10):
    """Let launch after launch end in the same way; return how many there were and the report."""
    pod = harness.launch(ti)
    for launches in range(1, at_most + 1):
        harness.observe(pod, like)
        if events := harness.events():
            return launches, events[ti.key]
        if launches > IMMEDIATE_RELAUNCHES:
            assert harness.runtime.take("create") == []  # not in a busy loop
            harness.wait(MINIMUM_BACKOFF.maximum)
        pod = harness.created()
    return at_most, None


@pytest.mark.parametrize(("limit", "launches"), [("0", 1), ("1", 2), ("3", 4)])
def test_relaunches_are_limited(start, queued_ti, limit, launches):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES=limit)
    ti = queued_ti()
    used, (state, info) = fail_until_reported(harness, ti, m.start_error())
    assert (used, state) == (launches, "failed")
    for part in ("StartError", "base", "exit code 128", f"launch {launches} of {launches}"):
        assert part in info
    assert "None" not in info
    assert not harness.occupied(ti)
    assert harness.runtime.take("create") == []
    actions = [entry["action"] for entry in harness.ledger(ti)]
    assert actions == ["relaunch"] * (launches - 1) + ["count"]


def test_relaunches_can_be_unlimited(start, queued_ti):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="-1")
    ti = queued_ti()
    assert fail_until_reported(harness, ti, m.evicted()) == (10, None)
    assert len(harness.ledger(ti)) == 10


@pytest.mark.parametrize(
    "like",
    [m.evicted(), m.pod("Failed"), m.pod("Failed", [m.base({})]), m.succeeded(), m.init_error()],
    ids=["evicted", "nothing known", "no container state", "silent exit", "init container"],
)
def test_the_report_never_says_none(start, queued_ti, like):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="0")
    ti = queued_ti()
    _, (_, info) = fail_until_reported(harness, ti, like)
    assert info
    assert "None" not in info
    assert "launch 1 of 1" in info


def test_each_try_has_its_own_count(harness, queued_ti):
    ti = queued_ti(retries=1)
    fail_until_reported(harness, ti, m.start_error())
    harness.begin_anew(ti, "queued", try_number=2, queued_by_job_id=harness.executor.job_id)
    assert fail_until_reported(harness, ti, m.start_error())[0] == 2


def test_the_dead_pod_is_tidied_after_its_end_was_reported(start, queued_ti):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="0")
    pod = harness.launch(queued_ti())
    harness.observe(pod, m.start_error())
    assert harness.runtime.take("mark_done") == []  # its successor would need it if this scheduler died now
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(pod.ref,)]


# ------------------------------------------------------------------------------------------- the exclusions


def test_the_workers_own_error_is_left_to_the_tasks_retries(harness, queued_ti):
    ti = queued_ti()
    used, (state, info) = fail_until_reported(harness, ti, m.worker_error())
    assert (used, state) == (1, "failed")
    for part in ("Error", "worker container base", "exit code", "launch 1 of 2", "not relaunched"):
        assert part in info
    assert [(entry["action"], entry["rule"]) for entry in harness.ledger(ti)] == [("count", "excluded")]


@pytest.mark.parametrize(
    ("excluded", "like", "launches"),
    [
        ("", m.worker_error(), 2),
        ("OOMKilled", m.out_of_memory(), 1),
        ("OOMKilled", m.worker_error(), 2),
        (" Error , OOMKilled,", m.out_of_memory(), 1),
    ],
    ids=["none", "another one", "not in the list", "several"],
)
def test_the_list_of_exclusions(start, queued_ti, excluded, like, launches):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_EXCLUDED_CONTAINER_REASONS=excluded)
    assert fail_until_reported(harness, queued_ti(), like)[0] == launches


def test_a_clean_up_that_follows_the_workers_own_error_does_not_excuse_it(harness, launched):
    ti, pod = launched
    with lock(ti):
        harness.observe(pod, m.worker_error())
        harness.observe(pod, m.pod("Failed", [m.base(m.terminated(1, "Error"))], deleted=True))
        harness.vanish(pod)
    harness.executor.sync()
    assert [entry["rule"] for entry in harness.ledger(ti)] == ["excluded"]
