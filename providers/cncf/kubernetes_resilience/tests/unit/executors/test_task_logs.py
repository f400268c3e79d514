# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The log page of a running task, from its pods."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kubernetes.client import ApiException

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from cluster_lab.apiserver.selectors import parse_selector

from ...support import manifests as m


class CoreV1Api:
    """As much of the client as is used, over the harness's pods."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.logs: dict[str, list[bytes] | Exception] = {}
        self.asked: list[dict] = []
        self.api_client = SimpleNamespace(sanitize_for_serialization=lambda pod: pod)

    def list_namespaced_pod(self, namespace, label_selector, _request_timeout):
        self.cluster.answer()
        wanted = parse_selector(label_selector)
        pods = [pod for pod in self.cluster.pods.values() if pod.ref.namespace == namespace]
        found = [pod.manifest for pod in pods if all(item.matches(pod.labels) for item in wanted)]
        return SimpleNamespace(items=found)

    def read_namespaced_pod_log(self, **options):
        self.asked.append(options)
        log = self.logs[options["name"]]
        if isinstance(log, Exception):
            raise log
        return iter(log)


@pytest.fixture
def client(cluster, monkeypatch):
    client = CoreV1Api(cluster)
    monkeypatch.setattr(upstream, "make_client", lambda team_name: client)
    return client


@pytest.fixture
def reader(session):
    """Give an executor that only reads logs, as the API server has one."""
    return KubernetesExecutor()


@pytest.fixture
def relaunched(harness, queued_ti, client):
    """Give a task that runs in its second pod, with the first one kept."""
    ti = queued_ti()
    first = harness.launch(ti).created("2026-01-01T00:00:00Z")
    harness.observe(first, m.start_error())
    second = harness.created()
    harness.begin(ti, second)
    client.logs = {first.name: [b"first one", b"first two"], second.name: [b"second one"]}
    return ti, first, second


def read(reader, ti):
    messages, streams = reader.get_streaming_task_log(ti, 1)
    return messages, [line for stream in streams for line in stream]


def test_one_pod(harness, launched, client, reader):
    ti, pod = launched
    harness.begin(ti, pod)
    client.logs[pod.name] = [b"\x1b[31mred\x1b[0m", b"caf\xe9"]
    messages, lines = read(reader, ti)
    assert lines == ["red", "caf�"]
    assert pod.name in messages[-1]
    (asked,) = client.asked
    assert (asked["container"], asked["tail_lines"], asked["namespace"]) == ("base", 100, "default")
    assert asked["_request_timeout"]


def test_the_log_of_a_worker_of_another_name(launched, client, reader):
    ti, pod = launched
    pod.annotations["airflow-resilience/worker-container"] = "etl"
    client.logs[pod.name] = [b"one"]
    assert read(reader, ti)[1] == ["one"]
    assert [asked["container"] for asked in client.asked] == ["etl"]


def test_the_current_launch_comes_first_and_the_others_under_a_heading(reader, relaunched):
    ti, first, second = relaunched
    messages, lines = read(reader, ti)
    assert lines == [
        "second one",
        f"--- launch 1, pod {first.name} ---",
        f"{first.name} | first one",
        f"{first.name} | first two",
    ]
    assert second.name in messages[-2]
    assert first.name in messages[-1]


def test_the_current_launch_is_the_one_in_which_the_task_runs(harness, reader, relaunched):
    ti, first, second = relaunched
    harness.set_state(ti, "running", hostname=f"{first.name}.dag.svc")
    _, lines = read(reader, ti)
    assert lines[:2] == ["first one", "first two"]
    assert lines[2:] == [f"--- launch 2, pod {second.name} ---", f"{second.name} | second one"]


def test_one_of_them_cannot_be_read(client, reader, relaunched):
    ti, first, second = relaunched
    client.logs[first.name] = ApiException(status=404, reason="Not Found")
    messages, lines = read(reader, ti)
    assert lines == ["second one"]
    assert any(first.name in text and "Not Found" in text for text in messages)
    assert second.name in " ".join(messages)


def test_a_refusal_is_told_in_the_words_of_the_api_server(client, reader, relaunched):
    ti, first, _ = relaunched
    error = ApiException(status=403, reason="Forbidden")
    error.body = '{"kind": "Status", "reason": "Forbidden", "message": "you cannot get pods/log"}'
    error.headers = {"Date": "today"}
    client.logs[first.name] = error
    messages, _ = read(reader, ti)
    assert f"Reading the log of pod {first.ref} failed: 403 Forbidden: you cannot get pods/log" in messages


def test_the_current_one_cannot_be_read(client, reader, relaunched):
    ti, first, second = relaunched
    client.logs[second.name] = ApiException(status=400, reason="ContainerCreating")
    messages, lines = read(reader, ti)
    assert lines[0] == f"--- launch 1, pod {first.name} ---"
    assert "ContainerCreating" in " ".join(messages)


def test_there_is_none(queued_ti, client, reader):
    messages, streams = reader.get_streaming_task_log(queued_ti(), 1)
    assert streams == []
    assert "no pod" in messages[-1]


def test_the_api_server_does_not_answer(queued_ti, client, cluster, reader):
    cluster.outage = ApiException(status=403, reason="Forbidden")
    messages, streams = reader.get_streaming_task_log(queued_ti(), 1)
    assert streams == []
    assert "Forbidden" in messages[-1]


def test_other_tries_and_tasks_are_left_out(harness, queued_ti, client, reader):
    one, other = queued_ti(mapped=2)
    pods = [harness.launch(ti) for ti in (one, other)]
    client.logs = {pod.name: [pod.name.encode()] for pod in pods}
    assert read(reader, one)[1] == [pods[0].name]
    assert reader.get_streaming_task_log(one, 2)[1] == []


def test_the_older_interface(reader, relaunched):
    ti, first, _ = relaunched
    _, (text,) = reader.get_task_log(ti, 1)
    assert text.splitlines()[:2] == ["second one", f"--- launch 1, pod {first.name} ---"]


def test_the_older_interface_without_a_client(queued_ti, reader, monkeypatch):
    def broken(team_name):
        raise OSError("no credentials")

    monkeypatch.setattr(upstream, "make_client", broken)
    messages, logs = reader.get_task_log(queued_ti(), 1)
    assert logs == [""]
    assert "no credentials" in messages[-1]
