# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The proposal, in its own words: a pod that fails before its task has started is requeued.

Here stands what everybody expects who has read it. What it leaves open has its tests in ``failures``,
``adoption``, ``creation`` and ``deletion``.

.. seealso:: https://github.com/apache/airflow/issues/69052
"""

from __future__ import annotations

import pytest

from ...support import manifests as m

CAUSES = {
    "node drain": m.disrupted("EvictionByEvictionAPI"),
    "autoscaler scale-down": m.pod(
        "Failed",
        [m.base(m.terminated(137, "ContainerStatusUnknown"))],
        conditions=(m.disruption("DeletionByPodGC"),),
        deleted=True,
    ),
    "spot reclaim": m.node_shutdown(),
    "node boot race": m.not_admitted(),
    "eviction under pressure": m.evicted(),
    "container that cannot start": m.start_error(),
    "container out of sight": m.status_unknown(),
    "init container": m.init_error(),
    "no details": m.pod("Failed"),
}
"""The proposal's, and those beside it that reach the watcher as FAILED."""

PREEMPTED = m.disrupted("PreemptionByScheduler")
"""Of the proposal too. It is launched again when its node's other pods are placed."""


def assert_requeued(harness, ti, pod):
    """The next pod of the same try is there, and the scheduler has heard of nothing."""
    again = harness.created()
    assert (again.name != pod.name, again.launch_number) == (True, pod.launch_number + 1)
    assert (harness.events(), harness.occupied(ti)) == ({}, True)
    row = harness.row(ti)
    assert (row.state, row.try_number, row.max_tries) == ("queued", 1, 0)
    return again


def assert_reported(harness, ti):
    """The scheduler was told of a failure, and there is no other pod."""
    assert {key: state for key, (state, _) in harness.events().items()} == {ti.key: "failed"}
    assert (harness.runtime.take("create"), harness.occupied(ti)) == ([], False)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_failed_event_of_a_queued_task_instance_is_requeued(harness, launched, cause):
    ti, pod = launched
    harness.observe(pod, cause)
    assert_requeued(harness, ti, pod)


@pytest.mark.parametrize("reason", ["ErrImagePull", "CreateContainerConfigError"])
def test_pending_pod_with_a_fatal_waiting_reason_is_requeued_later_once_it_is_gone(harness, launched, reason):
    ti, pod = launched
    harness.observe(pod, m.pod(containers=[m.base(m.waiting(reason, "registry is down"))]))
    assert harness.runtime.take("create") == []  # it could still start
    (asked,) = harness.runtime.take("delete")
    assert asked[0] == pod.ref
    harness.deleted(pod.ref)
    assert harness.runtime.take("create") == []  # nor would an image be there at once
    harness.wait(30.1)
    assert_requeued(harness, ti, pod)


def test_preempted_pod_is_requeued_later(harness, launched):
    ti, pod = launched
    harness.observe(pod, PREEMPTED)
    assert harness.runtime.take("create") == []
    harness.wait(10.1)
    assert_requeued(harness, ti, pod)


@pytest.mark.parametrize("cause", [*CAUSES.values(), PREEMPTED], ids=[*CAUSES, "preemption"])
def test_failed_event_of_a_running_task_instance_is_reported(harness, launched, cause):
    ti, pod = launched
    harness.observe(pod, m.alive())
    harness.begin(ti, pod)
    harness.observe(pod, cause)
    assert_reported(harness, ti)


def test_failed_event_of_a_resume_pod_is_requeued(harness, launched):
    ti, first = launched
    harness.observe(first, m.alive())
    harness.begin(ti, first)
    harness.set_state(ti, "deferred")
    harness.observe(first, m.succeeded())
    harness.events()
    harness.set_state(ti, "queued", next_method="execute_complete")
    resume = harness.launch(ti)
    harness.observe(resume, m.evicted())
    assert_requeued(harness, ti, resume)
    assert harness.row(ti).next_method == "execute_complete"
