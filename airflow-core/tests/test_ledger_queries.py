# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from sqlalchemy import event, func, select, update

from airflow_resilience import ledger
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import Action, Decision
from airflow_resilience.ledger import LAUNCH_FAILURE_EVENT, LAUNCH_HELD_EVENT
from airflow_resilience.ledger_entries import HeldLaunch, LedgerEntry
from airflow_resilience.ledger_queries import (
    RecordedOutage,
    read_failures,
    read_outages,
    read_task_failures,
    read_task_instance,
)
from airflow_resilience.outages import Dependency, DependencyKind
from airflow_resilience.propagation.audit import EVENT
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.termination.exceptions import explain

CONTEXT = ExecutionContext(
    StateChangeCategory.INFRASTRUCTURE,
    StateChangeReason.WORKER_TERMINATION,
    ContextSource.EXECUTOR,
    {"node": "node-1"},
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def fail(session):
    """Give a function that writes a failed launch into the ledger."""

    def write(ti, uid="a", at=NOON, action=Action.RELAUNCH, **fields):
        entry = LedgerEntry(
            ti_id=str(ti.id),
            worker_uid=uid,
            worker_name=f"pod-{uid}",
            launch=1,
            reason="Evicted",
            context=CONTEXT,
            decision=Decision(action=action, policy="spot", rule="drain", explanation="why"),
            **fields,
        )
        ledger.record([(ti.key, entry)], session=session)
        session.flush()
        written = session.scalar(select(func.max(Log.id)))
        session.execute(update(Log).where(Log.id == written).values(dttm=at))
        session.commit()
        return entry

    return write


def failures(session, since=NOON - HOUR, until=NOON + HOUR, dag_ids=None, limit=100):
    return read_failures(since, until, dag_ids=dag_ids, limit=limit, session=session)


def test_the_newest_failures_come_first(queued_ti, fail, session):
    ti = queued_ti()
    earlier, later = fail(ti, "a", NOON), fail(ti, "b", NOON + timedelta(minutes=1))
    found = failures(session).found
    assert [item.entry for item in found] == [later, earlier]
    assert found[0].at == NOON + timedelta(minutes=1)
    assert (found[0].key, found[0].try_state) == (ti.key, "queued")


def test_the_time_has_a_beginning_and_an_end(queued_ti, fail, session):
    ti = queued_ti()
    for uid, at in (("before", NOON - 2 * HOUR), ("first", NOON - HOUR), ("after", NOON + HOUR)):
        fail(ti, uid, at)
    assert [item.entry.worker_uid for item in failures(session).found] == ["first"]


def test_no_more_rows_than_asked_for_and_it_says_so(queued_ti, fail, session):
    ti = queued_ti()
    for number in range(3):
        fail(ti, str(number), NOON + timedelta(minutes=number))
    few, all_ = failures(session, limit=2), failures(session, limit=3)
    assert ([item.entry.worker_uid for item in few.found], few.is_cut) == (["2", "1"], True)
    assert (len(all_.found), all_.is_cut) == (3, False)


def test_only_dags_that_were_asked_for(queued_ti, fail, session):
    fail(queued_ti("open"))
    fail(queued_ti("secret"))
    assert {item.key.dag_id for item in failures(session, dag_ids={"open", "other"}).found} == {"open"}
    assert failures(session, dag_ids=set()).found == []
    assert len(failures(session).found) == 2


def test_rows_of_others_are_counted_and_left_out(queued_ti, fail, session):
    ti = queued_ti()
    fail(ti)
    session.add(Log(event=LAUNCH_FAILURE_EVENT, task_instance=ti.key, extra="of another version"))
    session.commit()
    now = datetime.now(UTC)
    found = failures(session, until=now + HOUR)
    assert (len(found.found), found.unreadable, found.is_cut) == (1, 1, False)


def test_the_state_of_a_try_is_that_of_its_end(queued_ti, fail, session):
    ti = queued_ti()
    fail(ti)
    ti.state = "success"
    session.commit()
    assert failures(session).found[0].try_state == "success"
    session.add(TaskInstanceHistory(ti, state="failed"))
    ti.state = None
    session.commit()
    assert failures(session).found[0].try_state == "failed"


def test_a_try_that_was_queued_for_too_long_in_the_end(queued_ti, fail, session):
    stuck, other = queued_ti("stuck"), queued_ti("other")
    for ti in (stuck, other):
        fail(ti)
    session.add(Log(event="stuck in queued reschedule", task_instance=other.key))
    session.add(Log(event="stuck in queued tries exceeded", task_instance=stuck.key))
    session.add(Log(event="stuck in queued tries exceeded", task_instance=other.key._replace(try_number=2)))
    session.commit()
    assert {item.key.dag_id: item.was_stuck for item in failures(session).found} == {
        "stuck": True,
        "other": False,
    }


def test_a_task_instance_in_another_try_says_nothing_about_this_one(queued_ti, fail, session):
    ti = queued_ti()
    fail(ti)
    ti.try_number, ti.state = 2, "success"
    session.commit()
    assert failures(session).found[0].try_state is None


def test_failures_of_a_task_instance_that_is_gone_are_found(queued_ti, fail, session):
    ti = queued_ti()
    fail(ti)
    session.delete(ti)
    session.commit()
    assert [item.try_state for item in failures(session).found] == [None]


def test_one_query_for_any_number_of_failures(queued_ti, fail, session):
    for ti in queued_ti(mapped=4):
        fail(ti, str(ti.map_index))
    statements = []
    event.listen(session.bind, "before_cursor_execute", lambda *args: statements.append(args[2]))
    failures(session)
    assert len([text for text in statements if text.startswith("SELECT")]) == 1


HUB = Dependency(DependencyKind.REGISTRY, "docker.io")
QUOTA = Dependency(DependencyKind.QUOTA, "airflow")
MINUTE = timedelta(minutes=1)


def outages(session, at):
    return read_outages(at, dag_ids=None, limit=100, session=session)


@pytest.fixture
def away(queued_ti, fail, session):
    """Give the time at which two things are away: of one it is known by now that it is back."""
    now = datetime.now(UTC)
    tis = queued_ti(mapped=4)
    for ti in tis[:2]:
        fail(ti, at=now - MINUTE, dependency=HUB, away_since=now - 5 * MINUTE)
    fail(tis[3], at=now - 2 * MINUTE, dependency=QUOTA, away_since=now - 5 * MINUTE)
    session.execute(update(TaskInstance).where(TaskInstance.id == tis[3].id).values(state="running"))
    held = [(ti.key, HeldLaunch(ti_id=str(ti.id), dependency=HUB, away_since=now - 5 * MINUTE)) for ti in tis]
    ledger.record_held([*held, held[0]], session=session)
    session.commit()
    return datetime.now(UTC)


def test_what_is_away_and_how_many_task_instances_wait_for_it(away, session):
    assert outages(session, away) == [RecordedOutage(HUB, outages(session, away)[0].since, 3, CONTEXT)]
    assert timedelta(minutes=4) < away - outages(session, away)[0].since < timedelta(minutes=6)


def test_a_scheduler_that_does_not_know_of_an_outage_does_not_end_it(away, queued_ti, fail, session):
    fail(queued_ti("other"), "b", at=away - timedelta(seconds=1), dependency=HUB)
    assert [item.dependency for item in outages(session, away)] == [HUB]


def test_nothing_is_away_that_nobody_has_failed_for_lately(away, session):
    assert outages(session, away + 10 * MINUTE) == []


def test_nothing_is_away_without_a_failure(queued_ti, fail, session):
    fail(queued_ti(), at=NOON, dependency=HUB)
    assert outages(session, NOON + MINUTE) == []


def test_everything_about_one_task_instance(queued_ti, fail, session):
    ti, other = queued_ti(mapped=2)
    fail(other, "other")
    entry = fail(ti, "a")
    held = HeldLaunch(ti_id=str(ti.id), dependency=HUB, away_since=NOON)
    ledger.record_held([(ti.key, held)], session=session)
    for told in ("running", "awaiting_input", "cli_task_run"):
        session.add(Log(event=told, task_instance=ti.key))
    ti.state, ti.hostname, ti.start_date = "running", "pod-b", NOON
    session.commit()
    found = read_task_instance(ti.dag_id, ti.run_id, ti.task_id, ti.map_index, limit=10, session=session)
    assert [(item.event, item.content) for item in found.events] == [
        (LAUNCH_FAILURE_EVENT, entry),
        (LAUNCH_HELD_EVENT, held),
        ("running", None),
        ("awaiting_input", None),
    ]
    assert (found.past, found.is_cut) == ([], False)
    now = found.present
    assert (now.state, now.hostname) == ("running", "pod-b")
    assert (now.try_number, now.started_at, now.max_tries) == (1, NOON, 0)


def test_tries_that_have_ended_come_from_the_history(queued_ti, session):
    ti = queued_ti(retries=1)
    ti.state, ti.hostname = "up_for_retry", "pod-a"
    session.add(TaskInstanceHistory(ti, state="failed"))
    ti.try_number, ti.state = 2, "queued"
    session.commit()
    found = read_task_instance(ti.dag_id, ti.run_id, ti.task_id, -1, limit=10, session=session)
    assert [(row.try_number, row.state, row.hostname) for row in found.past] == [(1, "failed", "pod-a")]
    assert found.present.try_number == 2


def test_a_task_instance_with_many_events_is_cut_at_its_oldest(queued_ti, fail, session):
    ti = queued_ti()
    for number in range(3):
        fail(ti, str(number))
    found = read_task_instance(ti.dag_id, ti.run_id, ti.task_id, -1, limit=2, session=session)
    assert ([item.content.worker_uid for item in found.events], found.is_cut) == (["1", "2"], True)


def test_a_task_instance_that_does_not_exist(queued_ti, session):
    ti = queued_ti()
    assert read_task_instance(ti.dag_id, ti.run_id, "other", -1, limit=10, session=session) is None


def test_tasks_that_failed_without_losing_a_worker(queued_ti, fail, session):
    ti, other = queued_ti("dag"), queued_ti("other")
    fail(ti)
    for item in (ti, other):
        extra = StoredContext(str(item.id), 1, explain(ValueError("own"))).to_json()
        session.add(Log(event=EVENT, task_instance=item.key, extra=extra))
    session.add(Log(event=EVENT, task_instance=ti.key, extra="of another version"))
    session.commit()

    def read(limit=10, dag_ids=None):
        now = datetime.now(UTC)
        return read_task_failures(now - HOUR, now + HOUR, dag_ids=dag_ids, limit=limit, session=session)

    assert [(item.key, item.context) for item in read().found] == [
        (other.key, explain(ValueError("own"))),
        (ti.key, explain(ValueError("own"))),
    ]
    assert (read().unreadable, read().is_cut, read(limit=2).is_cut) == (1, False, True)
    assert [item.key.dag_id for item in read(dag_ids={"dag"}).found] == ["dag"]
    assert read(dag_ids=set()).found == []
    assert len(failures(session, until=datetime.now(UTC) + HOUR).found) == 1
    found = read_task_instance(ti.dag_id, ti.run_id, ti.task_id, -1, limit=10, session=session)
    failed, ended, unreadable = [item.content for item in found.events]
    assert isinstance(failed, LedgerEntry)
    assert (ended.context.reason, unreadable) == ("TASK_ERROR", None)
