# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The scheduler takes a task instance back."""

from __future__ import annotations

from ...support import manifests as m


def test_a_revoked_task_is_forgotten(harness, launched):
    ti, pod = launched
    harness.events()
    harness.executor.revoke_task(ti=ti)
    assert harness.runtime.take("delete") == [(pod.ref,)]
    assert not harness.executor.has_task(ti)
    harness.observe(pod, m.pod("Failed", [m.base(m.terminated(143, "Error"))], deleted=True))
    harness.vanish(pod)
    assert (harness.events(), harness.ledger(ti)) == ({}, [])


def test_the_next_launch_waits_for_a_revoked_pod(harness, launched):
    ti, pod = launched
    harness.executor.revoke_task(ti=ti)
    harness.hand_over(ti)
    assert harness.runtime.take("create") == []
    harness.deleted(pod.ref)
    assert harness.created().launch_number == 1


def test_revoking_what_is_not_handed_over_yet(harness, queued_ti):
    ti = queued_ti()
    harness.queue(ti)
    harness.executor.revoke_task(ti=ti)
    harness.executor.heartbeat()
    assert harness.runtime.take("create") == []
    assert not harness.executor.has_task(ti)


def test_revoking_a_relaunch_that_waits(start, queued_ti):
    harness = start(KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS="ErrImagePull")
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.image_pull_error())
    harness.executor.revoke_task(ti=ti)
    harness.deleted(pod.ref)
    harness.wait(100)
    assert harness.runtime.take("create") == []


def test_revoking_what_is_not_known(harness, queued_ti):
    harness.executor.revoke_task(ti=queued_ti())
    assert [call for call in harness.runtime.commands if call[0].__name__ != "_list"] == []
