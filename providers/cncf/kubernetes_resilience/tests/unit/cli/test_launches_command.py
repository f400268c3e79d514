# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from kubernetes.client import ApiException
from sqlalchemy.exc import OperationalError
from urllib3.exceptions import MaxRetryError

from airflow.providers.cncf.kubernetes_resilience.cli import launches_command, pods
from airflow_resilience import ledger
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action, Decision
from airflow_resilience.ledger import HeldLaunch, LedgerEntry
from airflow_resilience.outages import Dependency, DependencyKind

from ...support import manifests as m
from .conftest import LOCAL, OURS

NOT_INSTALLED = "airflow.providers.nowhere.executors.absent_executor.AbsentExecutor"


class Response:
    def __init__(self, page):
        self.data = json.dumps(page).encode()


class Client:
    """Stands for an API server that gives one pod with each page."""

    def __init__(self):
        self.pods, self.asked = [], []

    def list_namespaced_pod(self, namespace, **options):
        self.asked.append(namespace)
        return self._page([pod for pod in self.pods if pod["metadata"]["namespace"] == namespace], **options)

    def list_pod_for_all_namespaces(self, **options):
        self.asked.append(None)
        return self._page(self.pods, **options)

    @staticmethod
    def _page(pods, *, label_selector, limit, _preload_content, _continue="0", **_):
        assert label_selector == "kubernetes_executor=True,airflow_executor_done!=True"
        assert limit > 0
        at = int(_continue)
        rest = {"continue": str(at + 1)} if at + 1 < len(pods) else {}
        return Response({"items": pods[at : at + 1], "metadata": rest})


@pytest.fixture
def client(monkeypatch):
    client = Client()
    monkeypatch.setattr(pods, "make_client", lambda team_name: client)
    return client


@pytest.fixture
def launches(run, client, configure):
    """Give a function that runs the command and returns its rows."""

    def command(*words):
        return run("launches", *words, "-o", "json").data

    return command


def pod_of(ti, manifest, *, name=m.NAME, namespace="default"):
    manifest["metadata"] |= {"name": name, "uid": name, "namespace": namespace}
    manifest["metadata"]["annotations"] |= {
        "dag_id": ti.dag_id,
        "task_id": ti.task_id,
        "run_id": ti.run_id,
        "try_number": str(ti.try_number),
        "map_index": str(ti.map_index),
        "airflow-resilience/task-instance-id": str(ti.id),
    }
    return manifest


def test_everything_that_is_known(launches, client, queued_ti):
    ti = queued_ti()
    client.pods.append(pod_of(ti, m.unscheduled()))
    assert launches() == [
        {
            "dag_id": ti.dag_id,
            "run_id": ti.run_id,
            "task_id": ti.task_id,
            "map_index": -1,
            "try_number": 1,
            "task_instance_id": str(ti.id),
            "task_state": "queued",
            "scheduler_job_id": ti.queued_by_job_id,
            "state": "pending",
            "launch": 1,
            "namespace": "default",
            "pod": m.NAME,
            "node": None,
            "since": "2026-03-01T08:00:00+00:00",
            "waits_for": "pod is Pending: Unschedulable: 0/3 nodes are available",
        }
    ]


def test_table_for_people(run, launches, client, queued_ti):
    client.pods.append(pod_of(queued_ti(), m.starting()))
    code, out, _ = run("launches")
    assert code == 0
    header, _, row, *_ = out.splitlines()
    assert "map index" not in header
    words = ["queued", "pending", m.NAME, m.NODE, "2026-03-01 08:00:00", "pod is Pending: ContainerCreating"]
    assert [word for word in words if word not in row] == []


def test_launch_that_is_held_says_for_what(launches, queued_ti, session):
    ti = queued_ti()
    hub = Dependency(DependencyKind.REGISTRY, "docker.io")
    held = HeldLaunch(ti_id=str(ti.id), dependency=hub, away_since=datetime.now(UTC))
    ledger.record_held([(ti.key, held)], session=session)
    session.commit()
    (launch,) = launches()
    assert (launch["state"], launch["waits_for"].partition(",")[0]) == ("held", "registry/docker.io")


def test_relaunch_that_waits_says_what_was_decided(launches, queued_ti, session):
    ti = queued_ti()
    decision = Decision(action=Action.RELAUNCH, policy="p", rule="r", explanation="launch 1 of 2 [spot]")
    context = ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_TERMINATION, ContextSource.EXECUTOR, {}
    )
    entry = LedgerEntry(
        ti_id=str(ti.id),
        worker_uid="gone",
        worker_name="sales-load-1",
        launch=1,
        reason="Evicted",
        context=context,
        decision=decision,
        due=datetime.now(UTC) + timedelta(hours=1),
    )
    ledger.record([(ti.key, entry)], session=session)
    session.commit()
    (row,) = launches()
    assert (row["state"], row["launch"], row["pod"]) == ("waiting", 2, None)
    assert row["waits_for"].startswith("relaunch due in ")
    assert row["waits_for"].endswith(": launch 1 of 2 [spot]")


def test_task_that_was_cleared_while_it_ran(launches, client, queued_ti, session):
    ti = queued_ti()
    ti.state = "running"
    session.commit()
    client.pods.append(pod_of(ti, m.alive()))
    ti.prepare_db_for_next_try(session)
    ti.state = "restarting"
    session.commit()
    (row,) = launches()
    assert (row["task_state"], row["state"], row["pod"]) == ("restarting", "started", m.NAME)


@pytest.mark.parametrize("state", [None, "scheduled", "deferred", "success", "up_for_retry"])
def test_task_that_no_executor_holds(launches, client, queued_ti, session, state):
    ti = queued_ti()
    ti.state = state
    session.commit()
    assert launches() == []
    assert client.asked == []


@pytest.mark.parametrize(
    ("option", "field"), [("--dag", "dag_id"), ("--run", "run_id"), ("--task", "task_id")]
)
def test_filters(launches, queued_ti, option, field):
    found = [queued_ti("sales", task_id="load"), queued_ti("stock", task_id="count")]
    assert len(launches()) == 2
    for ti in found:
        (row,) = launches(option, getattr(ti, field))
        assert row["task_instance_id"] == str(ti.id)
    assert launches(option, "none") == []


# -------------------------------------------------------------------------------------------------- executors


@pytest.mark.parametrize(
    ("configured", "named", "is_listed"),
    [
        ([(None, OURS)], None, True),
        ([(None, OURS)], "KubernetesExecutor", True),
        ([(None, OURS)], "of-a-configuration-before", True),
        ([(None, OURS), ("LocalExecutor", LOCAL)], None, True),
        ([(None, OURS), ("LocalExecutor", LOCAL)], "LocalExecutor", False),
        ([(None, OURS), ("quick", LOCAL)], "quick", False),
        ([(None, OURS), ("quick", LOCAL)], LOCAL, False),
        ([("LocalExecutor", LOCAL), ("pods", OURS)], None, False),
        ([("LocalExecutor", LOCAL), ("pods", OURS)], "pods", True),
        ([("LocalExecutor", LOCAL), ("pods", OURS)], OURS, True),
        ([(None, OURS), (None, NOT_INSTALLED)], "AbsentExecutor", False),
    ],
)
def test_task_of_another_executor_is_left_out_if_that_is_certain(
    launches, configure, queued_ti, session, configured, named, is_listed
):
    configure(*configured)
    ti = queued_ti()
    ti.executor = named
    session.commit()
    assert bool(launches()) is is_listed


def test_no_executor_of_this_kind(run, launches, configure):
    configure(("LocalExecutor", LOCAL))
    assert run("launches") == (2, "", "[core] executor names no executor of this provider\n")


# ------------------------------------------------------------------------------------------------- API server


@pytest.mark.parametrize(
    ("listed", "asked"),
    [(None, ["default", "default"]), ("", [None, None]), ("default,other", ["default", "default", "other"])],
)
def test_pods_are_read_page_by_page_in_the_executors_namespaces(
    launches, client, queued_ti, monkeypatch, listed, asked
):
    if listed is not None:
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE", "True")
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST", listed)
    first, second = queued_ti(mapped=2)
    client.pods += [pod_of(first, m.alive()), pod_of(second, m.starting(), name="sales-load-p3v8n1tc")]
    assert [row["state"] for row in launches()] == ["started", "pending"]
    assert client.asked == asked


def test_pod_without_identity_is_left_out(launches, client, queued_ti):
    manifest = pod_of(queued_ti(), m.alive())
    del manifest["metadata"]["uid"]
    client.pods.append(manifest)
    assert [row["state"] for row in launches()] == ["creating"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ApiException(403, "Forbidden"), "pods in default: 403 Forbidden\n"),
        (MaxRetryError(None, "/api"), "the Kubernetes API server does not answer: "),
    ],
)
def test_api_server_that_does_not_answer(run, launches, client, queued_ti, monkeypatch, error, said):
    queued_ti()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(client, "_page", fail)
    code, out, err = run("launches")
    assert (code, out) == (2, "")
    assert err.startswith(said)


def test_database_that_does_not_answer(run, launches, monkeypatch):
    def fail(*_, **__):
        raise OperationalError("SELECT", {}, Exception("no such table: task_instance"))

    monkeypatch.setattr(launches_command, "_read_tasks", fail)
    code, _, err = run("launches")
    assert (code, err) == (
        2,
        "the metadata database does not answer as it should: no such table: task_instance\n",
    )
