# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from airflow.models.log import Log
from sqlalchemy.exc import OperationalError

from airflow_resilience import ledger
from airflow_resilience.decision import Action
from airflow_resilience.propagation.audit import EVENT
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.termination.exceptions import explain

from ...support.entries import DUE, lost


@pytest.fixture
def fail(session):
    """Give a function that writes a failed launch of a task instance into the ledger."""

    def write(ti, launch=1, action=Action.RELAUNCH, phase=Phase.LAUNCH, next_ti_id=None, **metadata):
        explanation = f"launch {launch} of 2 [spot]"
        entry = lost(launch, action, phase, ti_id=str(ti.id), explanation=explanation, next_ti_id=next_ti_id)
        entry = replace(
            entry,
            context=replace(entry.context, metadata=metadata),
            decision=replace(entry.decision, delay=90.0),
        )
        ledger.record([(ti.key, entry)], session=session)
        session.commit()
        return entry

    return write


def test_everything_that_the_ledger_says(run, fail, queued_ti):
    ti = queued_ti()
    entry = fail(ti, node="node-1")
    fail(ti, 2, Action.COUNT)
    first, second = run("history", ti.dag_id, ti.run_id, ti.task_id, "-o", "json").data
    assert datetime.fromisoformat(first.pop("when")).tzinfo is not None
    assert first == {
        "try_number": 1,
        "map_index": -1,
        "phase": "launch",
        "launch": 1,
        "pod": "pod-1",
        "uid": "uid-1",
        "task_instance_id": str(ti.id),
        "next_task_instance_id": None,
        "reason": "EvictionByEvictionAPI",
        "context": entry.context.to_dict(),
        "decision": entry.decision.to_dict(),
        "due": DUE.isoformat(),
    }
    assert (second["launch"], second["decision"]["action"], second["due"]) == (2, "count", None)


def test_what_else_has_ended_a_try_stands_beside_the_pods(run, fail, queued_ti, session):
    ti = queued_ti()
    fail(ti)
    context = explain(ValueError("its own"))
    extra = StoredContext(str(ti.id), 1, context).to_json()
    session.add(Log(event=EVENT, task_instance=ti.key, extra=extra))
    session.commit()
    words = ("history", ti.dag_id, ti.run_id, ti.task_id)
    pod, end = run(*words, "-o", "json").data
    assert pod.keys() == end.keys()
    assert (end["reason"], end["context"], end["task_instance_id"]) == (
        "TASK_ERROR",
        context.to_dict(),
        str(ti.id),
    )
    assert (end["pod"], end["decision"]) == (None, None)
    out = run(*words).out
    assert "Its own code raised an exception. builtins.ValueError its own" in " ".join(out.split())


def test_table_for_people(run, fail, queued_ti):
    ti = queued_ti()
    fail(ti, node="node-1")
    code, out, _ = run("history", ti.dag_id, ti.run_id, ti.task_id)
    assert code == 0
    header, _, row, *_ = out.splitlines()
    assert "map index" not in header
    for word in ("pod-1", "node-1", "Eviction", "INFRASTRUCTURE", "relaunch", "1m30s", "1 of 2 [spot]"):
        assert word in row


def test_losses_of_the_running_task_stand_beside_its_launches(run, fail, queued_ti):
    ti = queued_ti()
    fail(ti)
    fail(ti, 2, phase=Phase.EXECUTION, next_ti_id="the new one")
    words = ("history", ti.dag_id, ti.run_id, ti.task_id)
    first, second = run(*words, "-o", "json").data
    assert (first["phase"], first["next_task_instance_id"]) == ("launch", None)
    assert (second["phase"], second["next_task_instance_id"]) == ("execution", "the new one")
    _, _, first, second, *_ = run(*words).out.splitlines()
    assert "execution" not in first
    assert "execution" in second


def test_one_mapped_task_instance_or_each(run, fail, queued_ti):
    tis = queued_ti(mapped=3)
    for number, ti in enumerate(tis, start=1):
        fail(ti, number)
    words = ("history", tis[0].dag_id, tis[0].run_id, tis[0].task_id)
    assert [row["map_index"] for row in run(*words, "-o", "json").data] == [0, 1, 2]
    (row,) = run(*words, "--map-index", "1", "-o", "json").data
    assert (row["map_index"], row["launch"]) == (1, 2)
    assert "map index" in run(*words).out


def test_one_try_or_each(run, fail, queued_ti, session):
    ti = queued_ti()
    fail(ti)
    ti.try_number = 2
    session.commit()
    fail(ti, 2)
    words = ("history", ti.dag_id, ti.run_id, ti.task_id, "-o", "json")
    assert [row["try_number"] for row in run(*words).data] == [1, 2]
    assert [row["try_number"] for row in run(*words, "--try", "2").data] == [2]


def test_task_whose_launches_all_went_well(run, queued_ti):
    ti = queued_ti()
    words = ("history", ti.dag_id, ti.run_id, ti.task_id)
    assert run(*words, "-o", "json").data == []
    assert "No data found" in run(*words).out


def test_task_that_was_never_there(run, queued_ti):
    ti = queued_ti()
    code, out, err = run("history", ti.dag_id, ti.run_id, "lode")
    assert (code, out) == (2, "")
    assert f"there is no task lode in run {ti.run_id} of Dag dag" in err


def test_history_of_a_task_that_was_deleted_is_still_there(run, fail, queued_ti, session):
    ti = queued_ti()
    fail(ti)
    words = ("history", ti.dag_id, ti.run_id, ti.task_id, "-o", "json")
    session.delete(ti)
    session.commit()
    assert len(run(*words).data) == 1


def test_row_of_another_version_is_left_out_and_told(run, fail, queued_ti, session):
    ti = queued_ti()
    session.add(Log(event=ledger.LAUNCH_FAILURE_EVENT, task_instance=ti.key, extra='{"action": "relaunch"}'))
    fail(ti)
    outcome = run("history", ti.dag_id, ti.run_id, ti.task_id, "-o", "json")
    assert [row["launch"] for row in outcome.data] == [1]
    assert "left out: 1" in outcome.err


def test_database_that_was_not_migrated(run, session, queued_ti, monkeypatch):
    def fail(*args, **kwargs):
        raise OperationalError("SELECT log", {}, Exception("no such table: log"))

    monkeypatch.setattr("airflow.providers.cncf.kubernetes_resilience.cli.history_command._read", fail)
    code, _, err = run("history", "dag", "run", "task")
    assert code == 2
    assert err == "the metadata database does not answer as it should: no such table: log\n"
