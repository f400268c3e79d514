# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from airflow.models.log import Log

from airflow_resilience import ledger
from airflow_resilience.ledger import LAUNCH_FAILURE_EVENT, LedgerEntry, read_histories, record
from airflow_resilience.policy import Action, Decision


def entry(ti, uid, action=Action.RELAUNCH):
    return LedgerEntry(str(ti.id), uid, f"pod-{uid}", Decision(action, "rule", "why"), {"exit_code": 137})


def history(ti, session):
    return read_histories({ti.key: str(ti.id)}, session=session)[ti.key]


def test_what_is_recorded_is_read_back(queued_ti, session):
    ti = queued_ti()
    record(ti.key, entry(ti, "a"), session=session)
    session.commit()
    assert history(ti, session).entries == [entry(ti, "a")]
    assert history(ti, session).of_worker("a") == entry(ti, "a")
    assert history(ti, session).of_worker("b") is None


def test_a_started_task_process_begins_a_new_count(queued_ti, session):
    ti = queued_ti()
    record(ti.key, entry(ti, "a"), session=session)
    session.flush()
    session.add(Log(event="running", task_instance=ti.key))
    session.flush()
    assert history(ti, session).relaunches == 0
    record(ti.key, entry(ti, "b"), session=session)
    session.flush()
    assert history(ti, session).relaunches == 1


def test_only_relaunches_count(queued_ti, session):
    ti = queued_ti()
    record(ti.key, entry(ti, "a"), session=session)
    record(ti.key, entry(ti, "b", Action.FAIL), session=session)
    session.flush()
    assert history(ti, session).relaunches == 1


def test_rows_of_others_do_not_count(queued_ti, session):
    ti, other = queued_ti("a"), queued_ti("b")
    record(other.key, entry(other, "a"), session=session)
    earlier_life = LedgerEntry("00000000-0000-0000-0000-000000000000", "x", "pod-x", entry(ti, "x").decision)
    record(ti.key, earlier_life, session=session)
    session.add(Log(event=LAUNCH_FAILURE_EVENT, task_instance=ti.key, extra="not ours"))
    session.add(Log(event="something else", task_instance=ti.key, extra=entry(ti, "y").to_json()))
    session.flush()
    assert history(ti, session).entries == []


def test_mapped_task_instances_count_apart(queued_ti, session):
    first, second = queued_ti(mapped=2)
    record(first.key, entry(first, "a"), session=session)
    session.flush()
    found = read_histories({ti.key: str(ti.id) for ti in (first, second)}, session=session)
    assert [found[ti.key].relaunches for ti in (first, second)] == [1, 0]


def test_nothing_asked_for_asks_nothing(session):
    assert read_histories({}, session=session) == {}


def test_the_row_explains_itself(queued_ti, session):
    ti = queued_ti()
    record(ti.key, entry(ti, "a"), session=session)
    session.flush()
    row = session.query(Log).filter_by(event=LAUNCH_FAILURE_EVENT).one()
    assert json.loads(row.extra) == {
        "action": "relaunch",
        "rule": "rule",
        "explanation": "why",
        "worker_name": "pod-a",
        "worker_uid": "a",
        "ti_id": str(ti.id),
        "exit_code": 137,
    }
    assert (row.dag_id, row.task_id, row.run_id, row.map_index, row.try_number) == (
        ti.dag_id,
        ti.task_id,
        ti.run_id,
        ti.map_index,
        1,
    )


def test_details_cannot_change_what_the_row_is_about(queued_ti):
    ti = queued_ti()
    details = {"ti_id": "another", "worker_uid": "another", "action": "fail"}
    disguised = LedgerEntry(str(ti.id), "a", "pod-a", Decision(Action.RELAUNCH, "rule", "why"), details)
    read = LedgerEntry.from_json(disguised.to_json())
    assert (read.ti_id, read.worker_uid, read.decision.action) == (str(ti.id), "a", Action.RELAUNCH)


def test_tries_count_apart(queued_ti, session):
    ti = queued_ti()
    record(ti.key, entry(ti, "a"), session=session)
    session.flush()
    second = ti.key._replace(try_number=2)
    found = read_histories({ti.key: str(ti.id), second: str(ti.id)}, session=session)
    assert [found[key].relaunches for key in (ti.key, second)] == [1, 0]


def test_entries_are_in_the_order_in_which_they_were_recorded(queued_ti, session):
    ti = queued_ti()
    for uid in "cab":
        record(ti.key, entry(ti, uid), session=session)
        session.flush()
    assert [item.worker_uid for item in history(ti, session).entries] == ["c", "a", "b"]


def test_database_that_compares_without_regard_to_case_does_not_mix_tasks(queued_ti, session, monkeypatch):
    ti = queued_ti()
    ours, other = ti.key, ti.key._replace(task_id=ti.task_id.upper())
    rows = [
        (tuple(key), LAUNCH_FAILURE_EVENT, entry(ti, uid).to_json())
        for key, uid in ((ours, "a"), (other, "b"))
    ]
    monkeypatch.setattr(ledger, "_rows", lambda keys, session: [*rows, (tuple(other), "running", None)])
    assert [item.worker_uid for item in history(ti, session).entries] == ["a"]


FIELDS = dict.fromkeys(("ti_id", "worker_uid", "worker_name", "rule", "explanation"), "x") | {
    "action": "fail"
}


@pytest.mark.parametrize(
    "extra",
    [
        None,
        "",
        "not ours",
        "7",
        "null",
        '["not", "ours"]',
        "{}",
        json.dumps(FIELDS | {"action": "explode"}),
        json.dumps(FIELDS | {"action": []}),
        *(json.dumps({name: FIELDS[name] for name in FIELDS if name != missing}) for missing in FIELDS),
    ],
)
def test_row_of_somebody_else_is_no_entry(extra):
    assert LedgerEntry.from_json(extra) is None
