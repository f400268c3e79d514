# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes thread crashes, and is started again."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed, PodCreated

from .. import manifests as m
from .cluster import Pod


def test_the_thread_is_revived_and_everything_asked_again(harness, queued_ti):
    created, creating = queued_ti(mapped=2)
    pod = harness.launch(created)
    harness.queue(creating)
    harness.executor.heartbeat()
    call = harness.create_call()
    harness.runtime.is_alive = False
    harness.executor.sync()
    assert (harness.runtime.is_alive, harness.runtime.starts) == (True, 2)
    assert harness.runtime.take("confirm") == [(pod.ref,)]
    assert harness.create_call() == call
    harness.send(PodConfirmed(pod.ref, None))
    assert harness.created().annotations["map_index"] == "0"


def test_commands_given_while_it_is_down_are_kept(harness, queued_ti):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.runtime.is_alive = False
    harness.executor.revoke_task(ti=ti)
    assert harness.runtime.take("delete") == []
    harness.executor.sync()
    assert harness.runtime.take("delete") == [(pod.ref,)]
    harness.executor.sync()
    assert harness.runtime.take("delete") == []


def test_a_pod_that_the_second_create_call_finds(harness, queued_ti):
    ti = queued_ti()
    harness.queue(ti)
    harness.executor.heartbeat()
    launch_id, body = harness.create_call()
    harness.runtime.is_alive = False
    harness.executor.sync()
    assert harness.create_call() == (launch_id, body)
    pod = Pod(body)
    harness.send(PodCreated(launch_id, pod.ref), PodCreated(launch_id, pod.ref))
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2
    assert len(harness.ledger(ti)) == 1


def test_a_thread_that_does_not_come_back_does_not_stop_the_scheduler(harness, queued_ti, monkeypatch):
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.runtime.is_alive = False
    with monkeypatch.context() as patch:
        patch.setattr(harness.runtime, "start", lambda: (_ for _ in ()).throw(OSError("no credentials")))
        harness.observe(pod, m.evicted())
    harness.executor.sync()
    assert harness.created().launch_number == 2
    assert harness.runtime.take("mark_done") == [(pod.ref,)]
