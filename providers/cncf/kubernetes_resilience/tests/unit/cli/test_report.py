# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.models.log import Log

from airflow.providers.cncf.kubernetes_resilience.cli import report_command
from airflow_resilience import ledger
from airflow_resilience.decision import Action
from airflow_resilience.ledger import LAUNCH_FAILURE_EVENT
from airflow_resilience.ledger_entries import HeldLaunch
from airflow_resilience.outages import Dependency, DependencyKind
from airflow_resilience.propagation.audit import EVENT
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.termination.exceptions import explain

from ...support.entries import lost


@pytest.fixture
def fail(session):
    """Give a function that has a task instance lose a pod."""

    def write(ti, entry):
        ledger.record([(ti.key, entry)], session=session)
        session.commit()

    return write


def test_the_numbers_of_the_page(run, fail, queued_ti):
    one, other = queued_ti("one"), queued_ti("other")
    fail(one, lost())
    fail(one, lost(2, Action.COUNT, ran_out=True))
    fail(other, lost(3, cause="node-lost", node="node-2"))
    told = run("report", "-o", "json").data
    assert (told["failures"], told["relaunched"], told["ran_out"]) == (3, 2, 1)
    assert [(item["name"], item["failures"]) for item in told["nodes"]] == [("node-1", 2), ("node-2", 1)]
    assert told["outcomes"]["failed-again"] == 1
    assert sum(bucket["relaunched"] + bucket["charged"] for bucket in told["buckets"]) == 3
    assert run("report", "--dag", "one", "-o", "json").data["failures"] == 2


def test_tables_for_people(run, fail, queued_ti):
    ti = queued_ti("sales")
    fail(ti, lost())
    code, out, err = run("report")
    assert (code, err) == (0, "")
    assert [word for word in ("drain", "node-1", "sales", "█") if word not in out] == []
    lines = {line.strip() for line in out.splitlines()}
    assert {"Over time", "Causes", "Nodes", "Dags"} <= lines


def test_tasks_that_failed_without_losing_a_pod_stand_beside_it(run, fail, queued_ti, session):
    ti = queued_ti()
    fail(ti, lost())
    for error in (ValueError(), KeyError()):
        extra = StoredContext(str(ti.id), 1, explain(error)).to_json()
        session.add(Log(event=EVENT, task_instance=ti.key, extra=extra))
    session.commit()
    told = run("report", "-o", "json").data
    assert (told["failures"], told["others"]["APPLICATION"], sum(told["others"].values())) == (1, 2, 2)
    lines = [line.split() for line in run("report").out.splitlines()]
    assert ["by", "themselves", "2"] in lines


def test_what_is_away_now(run, fail, queued_ti, session):
    ti, since = queued_ti("sales"), datetime.now(UTC)
    hub = Dependency(DependencyKind.REGISTRY, "docker.io")
    fail(ti, lost(dependency=hub, away_since=since))
    ledger.record_held(
        [(ti.key, HeldLaunch(ti_id=str(ti.id), dependency=hub, away_since=since))], session=session
    )
    session.commit()
    (away,) = run("report", "-o", "json").data["outages"]
    assert (away["dependency"], away["held"]) == ("registry/docker.io", 1)
    out = run("report").out
    assert "Away now" in out
    assert "registry/docker.io" in out


def test_no_failures(run, queued_ti):
    queued_ti()
    code, out, _ = run("report")
    assert code == 0
    assert "Causes" not in out
    assert run("report", "-o", "json").data["failures"] == 0


def test_only_the_last_days(run, fail, queued_ti, session):
    ti = queued_ti()
    fail(ti, lost())
    session.query(Log).update({"dttm": datetime.now(UTC) - timedelta(days=3)})
    session.commit()
    assert run("report", "--days", "2", "-o", "json").data["failures"] == 0
    assert run("report", "--days", "4", "-o", "json").data["failures"] == 1


@pytest.mark.parametrize("days", ["0", "93"])
def test_days_that_cannot_be(run, days, queued_ti):
    code, _, err = run("report", "--days", days)
    assert code == 2
    assert f"got {days}; allowed is 1 to 92" in err


def test_what_is_left_out_is_said(run, fail, queued_ti, session, monkeypatch):
    ti = queued_ti()
    fail(ti, lost())
    fail(ti, lost(2))
    session.add(Log(event=LAUNCH_FAILURE_EVENT, task_instance=ti.key, extra="of another version"))
    session.commit()
    monkeypatch.setattr(report_command, "MOST_FAILURES", 2)
    told = run("report", "-o", "json")
    assert (told.data["failures"], told.data["is_cut"], told.data["unreadable"]) == (1, True, 1)
    assert "there are more than 2 failures" in told.err
    assert "left out: 1" in told.err
