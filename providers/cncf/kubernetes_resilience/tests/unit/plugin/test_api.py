# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from airflow.models.log import Log

from airflow.providers.cncf.kubernetes_resilience.plugin import api
from airflow_resilience import ledger
from airflow_resilience.context import StateChangeCategory
from airflow_resilience.decision import Action
from airflow_resilience.outages import Dependency, DependencyKind
from airflow_resilience.propagation.audit import EVENT
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.termination.exceptions import explain

from ...support.entries import lost
from .conftest import API


@pytest.fixture
def fail(session):
    """Give a function that has a task instance lose a pod."""

    def write(ti, entry):
        ledger.record([(ti.key, entry)], session=session)
        session.commit()

    return write


def launches_of(ti, dag_id=None):
    return (
        f"{API}/dags/{quote(dag_id or ti.dag_id)}/dagRuns/{quote(ti.run_id)}"
        f"/taskInstances/{ti.task_id}/{ti.map_index}/launches"
    )


DATA = [
    f"{API}/failures",
    f"{API}/failures/summary",
    f"{API}/task-failures",
    f"{API}/dags/dag/dagRuns/r/taskInstances/t/-1/launches",
]


@pytest.mark.parametrize("path", DATA)
def test_nobody_anonymous_sees_anything(client, path):
    assert client.get(path).status_code == 401


def test_each_route_with_data_is_one_of_these():
    documented = {path.format(dag_id="dag", run_id="r", task_id="t", map_index=-1) for path in paths()}
    assert {f"/kubernetes-resilience{path}" for path in documented} == set(DATA)


def paths():
    return api.app.openapi()["paths"]


def test_whoever_may_not_read_a_dag_sees_none_of_it(log_in, queued_ti, fail, session):
    open_, secret = queued_ti("joan_dag"), queued_ti("secret")
    for ti in (open_, secret):
        fail(ti, lost())
        end(session, ti, explain(None))
    client = log_in("joan")
    assert client.get(launches_of(open_)).status_code == 200
    assert client.get(launches_of(secret)).status_code == 403
    for path in DATA[:3]:
        assert client.get(path, params={"dag_id": "joan_dag"}).status_code == 200
        assert client.get(path, params={"dag_id": "secret"}).status_code == 403
    for path in (DATA[0], DATA[2]):
        assert [row["dag_id"] for row in client.get(path).json()["rows"]] == ["joan_dag"]
    told = client.get(DATA[1]).json()
    assert (told["failures"], [dag["name"] for dag in told["dags"]]) == (1, ["joan_dag"])
    assert told["others"]["APPLICATION"] == 1
    assert log_in("admin").get(DATA[1]).json()["failures"] == 2


def test_the_dag_in_the_path_decides_and_not_one_in_the_query(log_in, queued_ti):
    secret = queued_ti("secret")
    assert log_in("joan").get(launches_of(secret), params={"dag_id": "joan_dag"}).status_code == 403


def test_a_wrong_token_is_refused(client):
    client.cookies.set("_token", "wrong")
    assert client.get(DATA[1]).status_code in (401, 403)


def test_launches_of_a_task_instance(log_in, queued_ti, fail):
    ti = queued_ti(retries=2)
    fail(ti, lost())
    told = log_in("admin").get(launches_of(ti)).json()
    assert (told["state"], told["is_live"], told["is_cut"]) == ("queued", True, False)
    (first,) = told["tries"]
    assert first["relaunches"] == {"used": 1, "allowed": 1}
    assert first["retries"] == {"used": 0, "allowed": 2}
    failed, waits = first["launches"]
    assert (failed["end"], failed["failure"]["pod"], failed["failure"]["node"]) == (
        "failed",
        "pod-1",
        "node-1",
    )
    assert failed["failure"]["decision"]["explanation"].startswith("launch 1 of 2")
    assert (waits["end"], waits["failure"]) == ("waiting", None)


def test_a_task_instance_that_does_not_exist(log_in, queued_ti):
    ti = queued_ti()
    answer = log_in("admin").get(launches_of(ti).replace("/task/", "/other/"))
    assert answer.status_code == 404


@pytest.mark.parametrize("index", ["-2", "x", str(2**31)])
def test_an_index_that_cannot_be(log_in, queued_ti, index):
    path = launches_of(queued_ti()).replace("/-1/", f"/{index}/")
    assert log_in("admin").get(path).status_code == 422


def test_a_name_with_a_character_that_databases_refuse(log_in, queued_ti):
    path = launches_of(queued_ti())
    for refused in (path.replace("/task/", "/%00/"), path.replace("/dag/", "/%00/"), f"{DATA[1]}?dag_id=%00"):
        assert log_in("admin").get(refused).status_code == 422


def test_each_number_of_the_summary_leads_to_its_rows(log_in, queued_ti, fail):
    one, other = queued_ti("one"), queued_ti("other")
    fail(one, lost())
    fail(one, lost(2, Action.COUNT, ran_out=True))
    fail(other, lost(3, cause="node-lost", node=None))
    client = log_in("admin")
    told = client.get(DATA[1]).json()
    assert (told["failures"], told["relaunched"], told["ran_out"]) == (3, 2, 1)

    def total(**params):
        return client.get(DATA[0], params=params).json()["total"]

    for field, counts in (("cause", "causes"), ("node", "nodes"), ("dag_id", "dags")):
        for count in told[counts]:
            assert total(**{field: count["name"]}) == count["failures"]
            assert total(**{field: count["name"]}, relaunched=False) == count["charged"]
    for outcome, number in told["outcomes"].items():
        assert total(outcome=outcome) == number
    for bucket in told["buckets"]:
        in_it = total(after=bucket["begins"], before=bucket["ends"])
        assert in_it == bucket["relaunched"] + bucket["charged"]
    assert (total(phase="launch"), total(phase="execution")) == (told["launches"], told["executions"])
    assert total(ran_out=True) == told["ran_out"]


def test_what_is_away_is_told_to_whom_it_concerns(log_in, queued_ti, fail):
    hub = Dependency(DependencyKind.REGISTRY, "docker.io")
    fail(queued_ti(), lost(dependency=hub, away_since=datetime.now(UTC)))
    (told,) = log_in("admin").get(DATA[1]).json()["outages"]
    assert (told["dependency"], told["held"], told["message"]) == ("registry/docker.io", 0, None)
    assert log_in("admin").get(DATA[1], params={"dag_id": "other"}).json()["outages"] == []


def end(session, ti, context):
    session.add(Log(event=EVENT, task_instance=ti.key, extra=StoredContext("ti", 1, context).to_json()))
    session.commit()


def test_tasks_that_failed_without_losing_a_pod_are_told_apart(log_in, queued_ti, fail, session):
    one, other = queued_ti("one"), queued_ti("other")
    fail(one, lost())
    end(session, one, explain(ValueError("<b>own</b>")))
    end(session, other, explain(None))
    end(session, other, replace(explain(None), category=StateChangeCategory.TIMEOUT))
    client = log_in("admin")
    told = client.get(DATA[1]).json()
    assert (told["failures"], told["outcomes"]["charged"]) == (1, 0)
    for category, number in told["others"].items():
        answer = client.get(DATA[2], params={"category": category}).json()
        assert (answer["total"], len(answer["rows"])) == (number, number)
    assert sum(told["others"].values()) == client.get(DATA[2]).json()["total"] == 3
    (row,) = client.get(DATA[2], params={"dag_id": "one"}).json()["rows"]
    assert (row["task_id"], row["try_number"], row["end"]["in_words"], row["end"]["message"]) == (
        "task",
        1,
        "Its own code raised an exception.",
        "<b>own</b>",
    )
    (told,) = client.get(launches_of(one)).json()["tries"]
    assert (told["ended_by"]["reason"], told["ended_by"]["exception"]) == (
        "TASK_ERROR",
        "builtins.ValueError",
    )


def test_a_page_of_rows(log_in, queued_ti, fail):
    for ti in queued_ti(mapped=3):
        fail(ti, lost(ti.map_index + 1))
    page = log_in("admin").get(DATA[0], params={"limit": 1, "offset": 1}).json()
    assert (page["total"], [row["map_index"] for row in page["rows"]]) == (3, [1])


def test_more_failures_than_are_read(log_in, queued_ti, fail, monkeypatch):
    for ti in queued_ti(mapped=3):
        fail(ti, lost(ti.map_index + 1))
    monkeypatch.setattr(api, "MOST_FAILURES", 2)
    told = log_in("admin").get(DATA[1]).json()
    assert (told["failures"], told["is_cut"]) == (2, True)


@pytest.mark.parametrize(
    "params",
    [
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": "2025-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": "2026-01-01T00:00:00"},
        {"until": "0001-01-01T00:00:00Z"},
        {"since": "yesterday"},
    ],
    ids=["backwards", "too long", "no time zone", "before time", "no time"],
)
def test_a_time_that_cannot_be_asked_for(log_in, params):
    assert log_in("admin").get(DATA[1], params=params).status_code == 422


def test_the_default_is_a_week_until_now(log_in):
    told = log_in("admin").get(DATA[1]).json()
    since, until = datetime.fromisoformat(told["since"]), datetime.fromisoformat(told["until"])
    assert until - since == timedelta(days=7)
    assert datetime.now(UTC) - until < timedelta(minutes=1)


def test_what_a_pod_has_said_is_text_and_stays_as_it_was(log_in, queued_ti, fail):
    ti = queued_ti()
    said = "<script>alert(1)</script>\x1b[31m & \u2028"
    entry = lost()
    entry.context.metadata["message"] = said
    fail(ti, entry)
    answer = log_in("admin").get(launches_of(ti))
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["tries"][0]["launches"][0]["failure"]["message"] == said


@pytest.mark.parametrize(
    "path", ["/failures", "/dags/a/runs/manual__2026-01-01T00:00:00+00:00/tasks/t/%7BMAP_INDEX%7D/launches"]
)
def test_pages_are_shells_that_run_nothing_of_others(client, path):
    answer = client.get(f"/kubernetes-resilience{path}")
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "http://" not in answer.text.replace("http://www.w3.org", "")
    assert "https://" not in answer.text


def test_it_is_documented(client):
    document = client.get("/kubernetes-resilience/openapi.json").json()
    for operations in document["paths"].values():
        assert {"401", "403"} <= set(operations["get"]["responses"])
        assert operations["get"]["security"]


@pytest.mark.parametrize("path", DATA[:3])
@pytest.mark.parametrize(
    ("since", "until", "status"),
    [
        ("9999-12-31T00:00:00Z", "9999-12-31T23:59:59Z", 422),
        ("0001-01-01T00:00:00Z", "0001-03-01T00:00:00Z", 200),
        ("0001-01-01T00:00:00+14:00", "0001-01-02T00:00:00Z", 422),
    ],
    ids=["end of time", "beginning of time", "before time in UTC"],
)
def test_a_time_at_the_edge_of_the_calendar_is_no_error_of_the_server(
    log_in, queued_ti, path, since, until, status
):
    queued_ti()  # The database is not asked without a Dag.
    assert log_in("admin").get(path, params={"since": since, "until": until}).status_code == status
