# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from uuid import uuid4

import pytest
from airflow.models.log import Log
from sqlalchemy import event

from airflow_resilience import ledger
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import Action, AvoidNode, Decision
from airflow_resilience.ledger import EXECUTION_FAILURE_EVENT, LAUNCH_FAILURE_EVENT, read_histories
from airflow_resilience.ledger_entries import HeldLaunch, LedgerEntry
from airflow_resilience.mutation import Mutation
from airflow_resilience.outages import Dependency, DependencyKind
from airflow_resilience.retry_policy.evidence import Phase

CONTEXT = ExecutionContext(
    StateChangeCategory.INFRASTRUCTURE,
    StateChangeReason.WORKER_TERMINATION,
    ContextSource.EXECUTOR,
    {"node": "node-1", "exit_code": 137},
)


def decision(action=Action.RELAUNCH):
    return Decision(
        action=action, policy="spot", rule="drain", explanation="why", delay=1.5, avoid_node=AvoidNode.PREFER
    )


def entry(ti, uid, action=Action.RELAUNCH):
    return LedgerEntry(
        ti_id=str(ti.id),
        worker_uid=uid,
        worker_name=f"pod-{uid}",
        launch=1,
        reason="Evicted",
        context=CONTEXT,
        decision=decision(action),
        due=datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC),
    )


def record(ti, entry, session):
    ledger.record([(ti.key, entry)], session=session)
    session.flush()


def history(ti, session):
    return read_histories({ti.key: str(ti.id)}, session=session)[ti.key].launches


def test_what_is_recorded_is_read_back(queued_ti, session):
    ti = queued_ti()
    record(ti, entry(ti, "a"), session)
    session.commit()
    assert history(ti, session).entries == [entry(ti, "a")]
    assert history(ti, session).of_worker("a") == entry(ti, "a")
    assert history(ti, session).of_worker("b") is None


@pytest.mark.parametrize(
    ("metadata", "was_pending"),
    [
        ({"phase": "Pending", "container_reason": "ErrImagePull"}, True),
        ({"phase": "Pending", "container_reason": "Error", "exit_code": 1}, False),
        ({"phase": "Running"}, False),
        ({}, False),
    ],
)
def test_a_worker_that_has_ended_cannot_start_any_more(queued_ti, metadata, was_pending):
    context = replace(CONTEXT, metadata=metadata)
    assert replace(entry(queued_ti(), "a"), context=context).was_pending is was_pending


def test_a_started_task_process_begins_a_new_count(queued_ti, session):
    ti = queued_ti()
    record(ti, entry(ti, "a"), session)
    session.add(Log(event="running", task_instance=ti.key))
    session.flush()
    assert history(ti, session).relaunches == 0
    record(ti, entry(ti, "b"), session)
    assert history(ti, session).relaunches == 1


def test_rows_of_others_do_not_count(queued_ti, session):
    ti, other = queued_ti("a"), queued_ti("b")
    record(other, entry(other, "a"), session)
    earlier_life = replace(entry(ti, "x"), ti_id="00000000-0000-0000-0000-000000000000")
    record(ti, earlier_life, session)
    session.add(Log(event=LAUNCH_FAILURE_EVENT, task_instance=ti.key, extra="not ours"))
    session.add(Log(event="something else", task_instance=ti.key, extra=entry(ti, "y").to_json()))
    session.flush()
    assert history(ti, session).entries == []


def test_mapped_task_instances_count_apart(queued_ti, session):
    first, second = queued_ti(mapped=2)
    record(first, entry(first, "a"), session)
    found = read_histories({ti.key: str(ti.id) for ti in (first, second)}, session=session)
    assert [found[ti.key].launches.relaunches for ti in (first, second)] == [1, 0]


def test_the_row_explains_itself(queued_ti, session):
    ti = queued_ti()
    record(ti, entry(ti, "a"), session)
    row = session.query(Log).filter_by(event=LAUNCH_FAILURE_EVENT).one()
    assert json.loads(row.extra) == {
        "action": "relaunch",
        "policy": "spot",
        "rule": "drain",
        "explanation": "why",
        "budget": None,
        "ran_out": False,
        "delay": 1.5,
        "avoid_node": "prefer",
        "mutation": None,
        "due": "2026-11-21T12:00:01+00:00",
        "launch": 1,
        "reason": "Evicted",
        "context": {
            "version": 1,
            "category": "INFRASTRUCTURE",
            "reason": "WORKER_TERMINATION",
            "source": "EXECUTOR",
            "metadata": {"node": "node-1", "exit_code": 137},
        },
        "worker_name": "pod-a",
        "worker_uid": "a",
        "ti_id": str(ti.id),
        "phase": "launch",
        "next_ti_id": None,
        "dependency": None,
        "away_since": None,
        "node_is_suspect": False,
    }
    assert (row.dag_id, row.task_id, row.run_id, row.map_index, row.try_number) == (
        ti.dag_id,
        ti.task_id,
        ti.run_id,
        ti.map_index,
        1,
    )


def test_the_last_entry_and_all_decisions(queued_ti, session):
    ti = queued_ti()
    assert history(ti, session).last is None
    for uid, action in (("a", Action.RELAUNCH), ("b", Action.FAIL)):
        record(ti, entry(ti, uid, action), session)
    assert history(ti, session).last == entry(ti, "b", Action.FAIL)
    assert history(ti, session).decisions == [decision(), decision(Action.FAIL)]
    assert history(ti, session).relaunches == 1


def test_tries_count_apart(queued_ti, session):
    ti = queued_ti()
    record(ti, entry(ti, "a"), session)
    second = ti.key._replace(try_number=2)
    found = read_histories({ti.key: str(ti.id), second: str(ti.id)}, session=session)
    assert [found[key].launches.relaunches for key in (ti.key, second)] == [1, 0]


def test_database_that_compares_without_regard_to_case_does_not_mix_tasks(queued_ti, session, monkeypatch):
    ti = queued_ti()
    ours, other = ti.key, ti.key._replace(task_id=ti.task_id.upper())
    rows = [
        (key, ledger._Row(LAUNCH_FAILURE_EVENT, entry(ti, uid))) for key, uid in ((ours, "a"), (other, "b"))
    ]
    restart = (other, ledger._Row("running", None))
    monkeypatch.setattr(ledger, "_rows", lambda keys, session: [*rows, restart])
    assert [item.worker_uid for item in history(ti, session).entries] == ["a"]


ROW = json.loads(entry(SimpleNamespace(id="x"), "a").to_json())
NEEDED = (
    *("ti_id", "worker_uid", "worker_name", "launch", "reason", "context", "due"),
    *("action", "policy", "rule", "explanation"),
)


@pytest.mark.parametrize(
    "extra",
    [
        *(None, "", "not ours", "7", "null", '["not", "ours"]', "{}", "[" * 100_000),
        *(json.dumps(ROW | {"action": action}) for action in ("explode", [])),
        *(json.dumps(ROW | {"due": due}) for due in ("13000-01-01T00:00:00Z", 7)),
        *(json.dumps(ROW | {"phase": phase}) for phase in ("afterwards", None, [])),
        *(json.dumps(ROW | change) for change in ({"launch": float("inf")}, {"dependency": 7})),
        *(json.dumps({name: ROW[name] for name in ROW if name != missing}) for missing in NEEDED),
    ],
    ids=lambda extra: str(extra)[:40],
)
def test_row_of_somebody_else_is_no_entry(extra):
    assert LedgerEntry.from_json(extra) is None


def test_a_time_without_a_zone_is_utc():
    read = LedgerEntry.from_json(json.dumps(ROW | {"due": "2026-11-21T12:00:01"}))
    assert read.due == datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC)


def test_a_later_entry_about_a_worker_takes_the_place_of_an_earlier_one(queued_ti, session):
    ti = queued_ti()
    for uid, reason in (("a", "ErrImagePull"), ("b", "Evicted"), ("a", "OOMKilled")):
        record(ti, replace(entry(ti, uid), reason=reason), session)
    session.commit()
    found = history(ti, session)
    assert [item.reason for item in found.entries] == ["Evicted", "OOMKilled"]
    assert found.relaunches == 2
    found.forget(found.entries[0])
    assert [item.reason for item in found.entries] == ["OOMKilled"]


# ------------------------------------------------------------------------------ tasks that were running


def new_id():
    return str(uuid4())


def test_a_loss_is_counted_in_an_event_of_its_own(queued_ti, session):
    ti = queued_ti()
    lost = replace(entry(ti, "a"), phase=Phase.EXECUTION, next_ti_id=new_id())
    record(ti, lost, session)
    assert session.query(Log).filter_by(event=EXECUTION_FAILURE_EVENT).count() == 1
    assert history(ti, session).entries == []
    found = read_histories({ti.key: lost.next_ti_id}, session=session)[ti.key].whole_try
    assert found.entries == [lost]


def test_losses_are_counted_through_each_new_uuid_and_each_start(queued_ti, session):
    ti = queued_ti()
    ids = [str(ti.id), new_id(), new_id(), new_id()]
    lost = []
    for number, (old, new) in enumerate(pairwise(ids)):
        lost.append(replace(entry(ti, f"pod-{number}"), ti_id=old, phase=Phase.EXECUTION, next_ti_id=new))
        record(ti, lost[-1], session)
        session.add(Log(event="running", task_instance=ti.key))
        session.flush()
    for present, expected in zip(ids, (0, 1, 2, 3), strict=True):
        found = read_histories({ti.key: present}, session=session)[ti.key].whole_try
        assert found.entries == lost[:expected]
        assert found.relaunches == expected
    assert ledger.read_replaced_ids({ti.key}, session=session) == {ti.key: set(ids[:-1])}


def test_changes_to_launches_stay_through_each_start_and_each_new_uuid(queued_ti, session):
    ti, second, third = queued_ti(), new_id(), new_id()
    pools = [Mutation(node_selector={"pool": name}) for name in "abc"]
    ids = [(str(ti.id), None), (str(ti.id), second), (second, third)]
    for number, (mutation, (old, new)) in enumerate(zip(pools, ids, strict=True)):
        item = entry(ti, f"pod-{number}")
        phase = Phase.EXECUTION if new else Phase.LAUNCH
        decided = replace(item.decision, mutation=mutation)
        record(ti, replace(item, ti_id=old, decision=decided, phase=phase, next_ti_id=new), session)
        session.add(Log(event="running", task_instance=ti.key))
        session.flush()

    def read(ti_id):
        return read_histories({ti.key: ti_id}, session=session)[ti.key].whole_try.mutations

    assert read(third) == pools
    assert read(second) == pools[:2]
    assert read(new_id()) == []  # it was cleared


def test_a_loss_that_was_reported_counts_for_the_uuid_that_had_it(queued_ti, session):
    ti = queued_ti()
    second = new_id()
    first_loss = replace(entry(ti, "a"), phase=Phase.EXECUTION, next_ti_id=second)
    reported = replace(entry(ti, "b", Action.COUNT), ti_id=second, phase=Phase.EXECUTION, due=None)
    of_others = replace(entry(ti, "c", Action.COUNT), ti_id=new_id(), phase=Phase.EXECUTION, due=None)
    for item in (first_loss, reported, of_others):
        record(ti, item, session)
    found = read_histories({ti.key: second}, session=session)[ti.key].whole_try
    assert found.entries == [first_loss, reported]
    assert found.of_worker("b") == reported


@pytest.mark.parametrize("afterwards", ["cleared", "next try"])
def test_a_cleared_task_instance_and_the_next_try_begin_a_new_count(queued_ti, session, afterwards):
    ti = queued_ti()
    second = new_id()
    record(ti, replace(entry(ti, "a"), phase=Phase.EXECUTION, next_ti_id=second), session)
    # Airflow gives a task instance another UUID in either case.
    key = ti.key if afterwards == "cleared" else ti.key._replace(try_number=2)
    assert read_histories({key: new_id()}, session=session)[key].whole_try.entries == []


def test_rows_that_lead_in_a_circle_end(queued_ti, session):
    ti = queued_ti()
    first, second = str(ti.id), new_id()
    for uid, old, new in (("a", first, second), ("b", second, first)):
        record(ti, replace(entry(ti, uid), ti_id=old, phase=Phase.EXECUTION, next_ti_id=new), session)
    assert read_histories({ti.key: first}, session=session)[ti.key].whole_try.relaunches == 2


def test_losses_of_several_task_instances_are_read_with_one_query(queued_ti, session):
    tis = queued_ti(mapped=3)
    for ti in tis[:2]:
        lost = replace(entry(ti, f"pod-{ti.map_index}"), phase=Phase.EXECUTION, next_ti_id=new_id())
        record(ti, lost, session)
        ti_ids = {ti.key: str(ti.id) for ti in tis} | {ti.key: lost.next_ti_id}
    session.flush()
    queries = []
    event.listen(session.bind, "before_cursor_execute", lambda *args: queries.append(args[2]))
    found = read_histories(ti_ids, session=session)
    assert len(queries) == 1
    assert [found[ti.key].whole_try.relaunches for ti in tis] == [0, 1, 0]
    assert read_histories({}, session=session) == {}
    assert len(queries) == 1


def test_a_row_that_is_older_than_infrastructure_retries_is_about_a_launch():
    later = ("phase", "next_ti_id", "dependency", "away_since", "node_is_suspect")
    read = LedgerEntry.from_json(json.dumps({name: ROW[name] for name in ROW if name not in later}))
    assert (read.phase, read.next_ti_id, read.worker_uid) == (Phase.LAUNCH, None, "a")


def test_both_histories_are_read_with_one_query(queued_ti, session):
    ti = queued_ti()
    second = new_id()
    lost = replace(entry(ti, "a"), phase=Phase.EXECUTION, next_ti_id=second)
    failed = replace(entry(ti, "b"), ti_id=second)
    record(ti, replace(entry(ti, "before it ran"), ti_id=second), session)
    session.add(Log(event="running", task_instance=ti.key))
    session.flush()
    for item in (lost, failed):
        record(ti, item, session)
    queries = []
    event.listen(session.bind, "before_cursor_execute", lambda *args: queries.append(args[2]))
    found = ledger.read_histories({ti.key: second}, session=session)[ti.key]
    assert len(queries) == 1
    assert (found.launches.entries, found.launches.decisions) == ([failed], [failed.decision])
    assert (found.whole_try.entries[1:], found.whole_try.decisions) == ([lost, failed], [lost.decision])


def test_no_more_starts_are_read_than_count(queued_ti, session):
    ti = queued_ti()
    read = []
    event.listen(session.bind, "after_cursor_execute", lambda *args: read.append(args[1].rowcount))
    for item in ("a", "b", None):
        session.add_all(Log(event="running", task_instance=ti.key) for _ in range(50))
        session.flush()
        if item:
            record(ti, replace(entry(ti, item), phase=Phase.EXECUTION), session)
            record(ti, entry(ti, f"launch of {item}"), session)
    read.clear()
    found = ledger.read_histories({ti.key: str(ti.id)}, session=session)[ti.key]
    assert read == [3 * 1 + 2 * 2]
    assert found.launches.entries == []


HELD = HeldLaunch(
    ti_id="a",
    dependency=Dependency(DependencyKind.REGISTRY, "docker.io"),
    away_since=datetime(2026, 3, 1, tzinfo=UTC),
)


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "[]", "null", "{}"),
        HELD.to_json().replace("registry", "moon"),
        HELD.to_json().replace("2026", "x"),
    ],
)
def test_a_row_about_a_held_launch_that_is_not_ours(text):
    assert HeldLaunch.from_json(text) is None
