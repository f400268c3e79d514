# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The metadata database is slow, locked or away: nothing is lost and nothing is done twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import OperationalError

from airflow.providers.cncf.kubernetes_resilience.executors import isolation
from airflow.providers.cncf.kubernetes_resilience.executors.running_workers import RunningWorkers
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow_resilience import ledger

from ...support import manifests as m
from ...support.entries import lost
from ...support.harness import OTHER_JOB, database_away, lock, request_for


def test_a_row_that_somebody_has_locked_is_settled_later_and_once(harness, launched):
    ti, pod = launched
    with lock(ti):
        harness.observe(pod, m.evicted())
        harness.executor.sync()
        assert harness.runtime.take("create") == []
        assert harness.ledger(ti) == []
    harness.executor.sync()
    assert harness.created().launch_number == 2
    harness.executor.sync()
    assert len(harness.ledger(ti)) == 1


def test_a_locked_row_does_not_hold_up_the_others(harness, queued_ti):
    locked, free = queued_ti(mapped=2)
    pods = [harness.launch(ti) for ti in (locked, free)]
    with lock(locked):
        harness.observe(pods[0], m.evicted())
        harness.observe(pods[1], m.evicted())
        assert harness.created().annotations["map_index"] == "1"
    harness.executor.sync()
    assert harness.created().annotations["map_index"] == "0"


@pytest.mark.parametrize("like", [m.evicted(), m.succeeded()], ids=["failed", "succeeded"])
def test_a_task_that_is_taken_away_before_its_row_is_free(harness, launched, like):
    ti, pod = launched
    with lock(ti):
        harness.observe(pod, like)
        harness.executor.revoke_task(ti=ti)
    harness.executor.sync()
    assert (harness.events(), harness.ledger(ti), harness.runtime.take("create")) == ({}, [], [])
    assert (pod.ref,) in harness.runtime.take("delete")


@pytest.mark.parametrize("statement", ["read_rows", "lock_rows", "refresh_queued"])
def test_nothing_is_settled_while_the_database_is_away(harness, launched, statement, capsys):
    ti, pod = launched
    with database_away(task_instances, statement):
        harness.observe(pod, m.evicted())
        assert "did not answer" in capsys.readouterr().out
        assert harness.ledger(ti) == []
        assert harness.runtime.take("create") == harness.runtime.take("mark_done") == []
        assert harness.occupied(ti)
    harness.executor.sync()
    assert harness.created().launch_number == 2
    assert len(harness.ledger(ti)) == 1


def test_nothing_is_published_while_the_database_is_away(harness, queued_ti):
    ti = queued_ti()
    with database_away(task_instances, "read_rows"):
        harness.hand_over(ti)
        assert harness.runtime.take("create") == []
    harness.executor.sync()
    assert harness.created().launch_number == 1


def test_orphans_without_pod_are_scheduled_when_the_database_is_back(queued_ti, successor):
    ti = queued_ti()
    heir = successor()
    heir.offer(ti)
    with database_away(task_instances, "reschedule"):
        heir.executor.sync()
        assert heir.row(ti).state == "queued"
    heir.executor.sync()
    assert heir.row(ti).state == "scheduled"


@pytest.fixture
def sink(harness, queued_ti):
    """Give where callbacks are sent to. One is held, and the database is away."""
    ti = queued_ti()
    harness.run(ti)
    harness.session.refresh(ti)
    harness.executor.callback_sink = sink = Sink()
    harness.executor.send_callback(request_for(ti))
    return sink


class Sink:
    """Stores callbacks in the database, which is away."""

    def __init__(self):
        self.sent = []
        self.is_away = True

    def send(self, request):
        if self.is_away:
            raise OperationalError("INSERT", {}, Exception("the database is away"))
        self.sent.append(request)


def test_a_callback_waits_while_the_database_is_away(harness, sink, monkeypatch):
    monkeypatch.setattr(isolation, "database_answers", lambda: False)
    harness.executor.sync()
    monkeypatch.undo()
    sink.is_away = False
    for _ in range(2):
        harness.executor.sync()
    assert len(sink.sent) == 1


def test_the_end_while_the_database_is_away_says_which_callback_is_lost(harness, sink, monkeypatch, capsys):
    runtime = harness.runtime
    monkeypatch.setattr(isolation, "database_answers", lambda: False)
    harness.executor.end()
    assert not runtime.is_alive
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "callback" in line.lower())
    assert "task" in line


def test_tasks_are_taken_back_while_the_database_is_away(harness, queued_ti):
    tis = queued_ti(mapped=2)
    for ti in tis:
        harness.observe(harness.launch(ti), m.unschedulable())
    with database_away(task_instances, "lock_rows"):
        for ti in tis:
            harness.executor.revoke_task(ti=ti)
    assert len(harness.runtime.take("delete")) == len(tis)
    assert harness.executor.running == set()


@pytest.mark.parametrize("values", [{"state": "failed"}, {"state": "queued", "queued_by_job_id": OTHER_JOB}])
def test_a_pod_is_not_launched_for_a_task_that_is_not_queued_any_more(harness, queued_ti, values):
    ti = queued_ti()
    harness.queue(ti)
    harness.set_state(ti, **values)
    harness.executor.heartbeat()
    assert harness.runtime.take("create") == []
    assert not harness.occupied(ti)
    assert harness.executor.get_event_buffer() == {}


@pytest.mark.parametrize(
    "values", [{"state": "scheduled"}, {"queued_by_job_id": None}, {"try_number": 2}], ids=str
)
@pytest.mark.parametrize("is_read", [False, True])
def test_a_relaunch_is_dropped_if_the_task_was_taken_away_meanwhile(
    harness, queued_ti, values, monkeypatch, is_read
):
    """Before its row is read, or between that and the lock."""
    ti = queued_ti()
    pod, key = harness.launch(ti), ti.key
    due = harness.parts.launch_queue.due
    harness.parts.launch_queue.due = list
    harness.observe(pod, m.evicted())
    harness.parts.launch_queue.due = due
    lock_rows = task_instances.lock_rows

    def change(*args, **options):
        harness.set_state(ti, **{"state": "queued"} | values)
        return lock_rows(*args, **options)

    if is_read:
        monkeypatch.setattr(task_instances, "lock_rows", change)
    else:
        harness.set_state(ti, **{"state": "queued"} | values)
    harness.executor.sync()
    harness.executor.sync()
    assert harness.runtime.take("create") == []
    assert key not in harness.executor.running


def test_a_worker_is_followed_although_the_database_was_away_when_it_was_noticed(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2")
    ti = queued_ti()
    harness.queue(ti)
    harness.set_state(ti, "running", hostname="another-pod")
    with database_away(RunningWorkers, "_find_running"):
        harness.executor.heartbeat()
    harness.wait(2)
    assert harness.registry.adopting_of(ti.key)


def test_a_launch_that_another_scheduler_has_postponed_waits_though_a_batch_is_repeated(
    harness, queued_ti, monkeypatch
):
    waits, other = queued_ti("waits"), queued_ti("other")
    entry = lost(ti_id=str(waits.id), due=datetime.now(UTC) + timedelta(minutes=1))
    entry = replace(entry, decision=replace(entry.decision, delay=60.0))
    ledger.record([(waits.key, entry)], session=harness.session)
    harness.session.commit()
    lock_rows, deadlocks = task_instances.lock_rows, [OperationalError("UPDATE", {}, Exception("a deadlock"))]

    def fail_once(*args, **options):
        if deadlocks:
            raise deadlocks.pop()
        return lock_rows(*args, **options)

    monkeypatch.setattr(task_instances, "lock_rows", fail_once)
    harness.hand_over(waits, other)
    (call,) = harness.runtime.take("create")
    assert call[1]["metadata"]["annotations"]["dag_id"] == "other"
