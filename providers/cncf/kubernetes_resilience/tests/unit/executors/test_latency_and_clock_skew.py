# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What takes longer than it should: answers that come late, and a database that is slow."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from airflow.models.log import Log
from sqlalchemy import select

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import UNKNOWN_VERSION
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import ConnectionFailedError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodCreated, PodObservation
from airflow_resilience import ledger
from airflow_resilience.backoff import Backoff
from airflow_resilience.retry_policy import engine

from ...support import manifests as m
from ...support.cluster import Pod


def test_a_pod_created_long_after_its_launch_was_revoked_is_deleted(harness, called):
    ti, (launch_id, body) = called
    harness.executor.revoke_task(ti=ti)
    harness.clock.advance(1000)
    harness.hand_over(ti)
    harness.created()
    late = harness.cluster.add(Pod(body))
    harness.send(PodCreated(launch_id, late.facts()))
    assert (late.ref, UNKNOWN_VERSION, harness.label) in harness.runtime.take("delete")


def test_superseded_pods_of_tasks_that_are_never_launched_again_are_forgotten(harness, queued_ti):
    harness.hand_over(queued_ti())
    harness.refuse(ConnectionFailedError("refused"))
    harness.wait(1000)
    assert harness.registry._departing == {}


def test_a_slow_database_lets_more_than_one_pod_through(harness, queued_ti, monkeypatch):
    for ti in queued_ti(mapped=5):
        harness.queue(ti)
    read = ledger.read_histories

    def slow(*args, **kwargs):
        harness.clock.advance(10)
        return read(*args, **kwargs)

    monkeypatch.setattr(ledger, "read_histories", slow)
    harness.executor.heartbeat()
    assert len(harness.runtime.take("create")) == 5


def test_an_adopted_pod_that_the_informer_never_shows_is_asked_for(launched, successor):
    ti, pod = launched
    heir = successor()
    heir.adopt(ti)
    heir.wait(61)
    assert heir.runtime.take("confirm") == [(pod.ref,)]


def test_a_deletion_is_overdue_by_our_own_clock(harness, launched):
    ti, pod = launched
    manifest = m.pod("Running", [m.base({"running": {"startedAt": m.CREATED}})])
    manifest["metadata"] |= {"uid": pod.ref.uid, "deletionTimestamp": "2001-01-01T00:00:00Z"}
    manifest["metadata"] |= {
        "name": pod.name,
        "namespace": pod.ref.namespace,
        "deletionGracePeriodSeconds": 30,
    }
    facts = read_pod(manifest)
    harness.send(PodObservation(facts))
    harness.wait(34)
    assert harness.ledger(ti) == []
    harness.wait(2)
    assert [row["reason"] for row in harness.ledger(ti)] == ["DeletionOverdue"]
    assert harness.runtime.take("delete") == [(pod.ref,)]
    harness.wait(2)
    harness.created()  # its grace period is over: there is no other to wait for


def test_a_due_time_of_a_clock_that_was_ahead_is_no_further_away_than_the_delay(
    harness, queued_ti, successor, session, monkeypatch
):
    monkeypatch.setattr(engine, "IMMEDIATE_RELAUNCHES", 0)
    monkeypatch.setattr(engine, "MINIMUM_BACKOFF", Backoff(initial=60.0, maximum=60.0, jitter=0.0))
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.evicted())
    row = session.scalars(select(Log).where(Log.event == "pod launch failed")).one()
    ahead = datetime.now(UTC) + timedelta(hours=5)
    row.extra = json.dumps({**json.loads(row.extra), "due": ahead.isoformat()})
    session.commit()
    heir = successor()
    harness.cluster.remove(pod)
    heir.take_over(ti)
    assert heir.row(ti).state == "scheduled"
    heir.requeue(ti)
    heir.wait(59)
    assert heir.runtime.take("create") == []
    heir.wait(1)
    assert heir.created().launch_number == 2
