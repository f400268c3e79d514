# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes thread crashes, and is started again."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed, PodCreated

from ....support import manifests as m
from ....support.cluster import Pod


def cannot_start(*, wait):
    raise OSError("no credentials")


@pytest.fixture
def superseded(start, queued_ti):
    """Give an executor that has given a pod up which could still start, and the pod."""
    harness = start(KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS="RunContainerError")
    pod = harness.launch(queued_ti())
    harness.observe(pod, m.not_startable())
    return harness, pod


def test_the_thread_is_revived_and_everything_asked_again(harness, queued_ti):
    created, creating = queued_ti(mapped=2)
    pod = harness.launch(created)
    call = harness.call_for(creating)
    harness.runtime.is_alive = False
    harness.executor.sync()
    assert (harness.runtime.is_alive, harness.runtime.starts) == (True, 2)
    assert harness.runtime.take("confirm") == [(pod.ref,)]
    assert harness.create_call() == call
    harness.send(PodConfirmed(pod.ref, None))
    assert harness.created().annotations["map_index"] == "0"


def test_commands_given_while_it_is_down_are_kept(harness, launched):
    ti, pod = launched
    harness.runtime.is_alive = False
    harness.executor.revoke_task(ti=ti)
    assert harness.runtime.take("delete") == []
    harness.executor.sync()
    assert harness.runtime.take("delete") == [(pod.ref,)]
    harness.executor.sync()
    assert harness.runtime.take("delete") == []


def test_a_pod_that_the_second_create_call_finds(harness, called):
    ti, (launch_id, body) = called
    harness.runtime.is_alive = False
    harness.executor.sync()
    assert harness.create_call() == (launch_id, body)
    pod = Pod(body)
    harness.send(PodCreated(launch_id, pod.facts()), PodCreated(launch_id, pod.facts()))
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2
    assert len(harness.ledger(ti)) == 1


def test_a_thread_that_does_not_come_back_does_not_stop_the_scheduler(harness, launched, monkeypatch):
    _, pod = launched
    harness.runtime.is_alive = False
    with monkeypatch.context() as patch:
        patch.setattr(harness.runtime, "start", cannot_start)
        harness.observe(pod, m.evicted())
    harness.executor.sync()
    assert harness.created().launch_number == 2
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(pod.ref,)]


def test_a_deletion_that_was_accepted_is_not_asked_for_again(superseded):
    harness, pod = superseded
    harness.accepted(pod.ref)
    harness.runtime.crash()
    harness.executor.sync()
    assert harness.runtime.take("delete") == []


def test_a_creation_that_was_called_off_is_looked_for_again(harness, called):
    ti, (launch_id, body) = called
    harness.executor.revoke_task(ti=ti)
    harness.runtime.crash()
    harness.executor.sync()
    assert harness.runtime.take("look_for") == [("default", body["metadata"]["name"], launch_id)]
    assert harness.runtime.take("create") == []


def test_the_loop_does_not_wait_until_the_thread_is_connected(superseded):
    harness, pod = superseded
    harness.runtime.crash()
    harness.runtime.connects = False
    for _ in range(3):
        harness.executor.sync()
    assert not harness.runtime.is_alive
    harness.runtime.connects = True
    harness.executor.sync()
    assert harness.runtime.take("delete") == [(pod.ref,)]


def test_one_create_call_that_cannot_be_repeated_does_not_keep_the_others(harness, queued_ti, monkeypatch):
    harness.hand_over(*queued_ti(mapped=2))
    assert len(harness.runtime.take("create")) == 2
    make_token, refused = upstream.make_token, []

    def once(*args):
        if not refused:
            refused.append(args)
            raise OSError("the key is being replaced")
        return make_token(*args)

    monkeypatch.setattr(upstream, "make_token", once)
    harness.runtime.crash()
    harness.wait(400)  # a token is renewed after a third of its validity
    for _ in range(10):
        harness.wait(1)
    assert refused
    assert len(harness.runtime.take("create")) == 2
