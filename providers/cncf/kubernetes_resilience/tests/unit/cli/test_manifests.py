# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import socket

import pytest
import yaml
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import MaxRetryError

from airflow.providers.cncf.kubernetes_resilience.cli import explain_command, manifests
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError

from ...support import manifests as m


def named(name):
    manifest = m.evicted()
    manifest["metadata"]["name"] = name
    return manifest


def without_kind(name):
    manifest = named(name)
    del manifest["kind"], manifest["apiVersion"]
    return manifest


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (json.dumps(named("a")), ["a"]),
        (yaml.safe_dump(named("a")), ["a"]),
        (yaml.safe_dump_all([named("a"), named("b")]), ["a", "b"]),
        ("---\n" + yaml.safe_dump(named("a")) + "---\n", ["a"]),
        (json.dumps({"kind": "List", "items": [named("a"), named("b")]}), ["a", "b"]),
        (json.dumps({"kind": "PodList", "items": [without_kind("a")]}), ["a"]),
        (json.dumps(without_kind("a")), ["a"]),
        (json.dumps(named("a"), indent="\t"), ["a"]),
    ],
)
def test_pods_of_a_file(tmp_path, text, names):
    file = tmp_path / "pods"
    file.write_text(text)
    assert [facts.ref.name for facts in manifests.from_file(str(file))] == names


def test_pods_of_a_pipe(monkeypatch):
    # In UTF-8, whatever the locale.
    content = json.dumps(named("ä"), ensure_ascii=False).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))
    assert [facts.ref.name for facts in manifests.from_file("-")] == ["ä"]


def test_closed_standard_input_is_named(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CommandError, match=r"^standard input: "):
        manifests.from_file("-")


def test_time_without_quotes_is_a_time(tmp_path):
    file = tmp_path / "pod.yaml"
    text = yaml.safe_dump(m.pod(deleted=True))
    assert f"'{m.DELETION_ENDS}'" in text
    file.write_text(text.replace("'", ""))
    (facts,) = manifests.from_file(str(file))
    assert facts.deletion_timestamp is not None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "there is no pod in it"),
        (b'{"kind": "List", "items": []}', "there is no pod in it"),
        (b'{"kind": "Deployment"}', "a Pod is needed, not Deployment"),
        (b'{"kind": "List", "items": [{"kind": "Node"}]}', "a Pod is needed, not Node"),
        (b'{"kind": "List", "items": "all"}', "a Pod is needed, not List"),
        (b"[1]", "a Pod is needed, not list"),
        (b"{}", "pod without identity"),
        (b'{"kind": "Pod", "metadata": {"name": "a"', "line 1"),
        (b"kind: Pod\nmetadata: [", "line 2"),
        (b"!!python/object:os.system {}", "could not determine a constructor"),
        (b"\xff\xfe", "codec can't decode"),
        (b"0x_", "invalid literal"),
        (b"!!float abc", "could not convert"),
        (b"!!bool no idea", "no idea"),
        (b"!!int ''", "out of range"),
        (b"!!timestamp soon", "NoneType"),
        (b"[" * 200_000, "recursion"),
        (b"1" * 5_000, "4300 digits"),
    ],
)
def test_file_that_cannot_be_used(tmp_path, content, said):
    file = tmp_path / "pod.yaml"
    file.write_bytes(content)
    with pytest.raises(CommandError, match=said) as refused:
        manifests.from_file(str(file))
    assert str(refused.value).startswith(f"{file}: ")


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(CommandError, match="No such file"):
        manifests.from_file(str(tmp_path / "none.yaml"))


class Response:
    def __init__(self, manifest):
        self.data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()


class Client:
    """Stands for the API server."""

    def __init__(self, answer):
        self.answer, self.asked = answer, None

    def read_namespaced_pod(self, name, namespace, *, _preload_content, _request_timeout):
        self.asked = (namespace, name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return Response(self.answer)


@pytest.fixture
def answer(monkeypatch):
    """Give a function that lets the API server answer."""

    def make(content):
        client = Client(content)
        monkeypatch.setattr(explain_command, "make_client", lambda team_name: client)
        return client

    return make


@pytest.mark.parametrize(("stated", "asked"), [("airflow", "airflow"), (None, "default")])
def test_pod_of_the_cluster(answer, stated, asked):
    client = answer(named("a"))
    assert explain_command.from_cluster("a", stated, KubeConfig()).ref.name == "a"
    assert client.asked == (asked, "a")


@pytest.fixture
def silent_server(tmp_path, monkeypatch):
    """Have the API server's address be one that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = {"server": f"http://127.0.0.1:{server.getsockname()[1]}"}
        file = tmp_path / "kubeconfig"
        file.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "a", "cluster": cluster}],
                    "users": [{"name": "a", "user": {}}],
                    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                    "current-context": "a",
                }
            )
        )
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(file))
        yield


@pytest.mark.parametrize(
    "arguments", [None, '{"_preload_content": true, "limit": 3}', '{"_request_timeout": 0.01}']
)
def test_api_server_that_does_not_answer_is_not_waited_for_without_end(silent_server, monkeypatch, arguments):
    if arguments:
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__KUBE_CLIENT_REQUEST_ARGS", arguments)
    monkeypatch.setattr(explain_command, "CLIENT_TIMEOUT", 0.01)
    with pytest.raises(CommandError, match="does not answer"):
        explain_command.from_cluster("a", "airflow", KubeConfig())


@pytest.mark.parametrize("content", [b"- a", b"hello", b"a: [", b"\xff\xfe"])
def test_kubeconfig_that_is_none_ends_in_a_sentence(tmp_path, monkeypatch, content):
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(file))
    with pytest.raises(CommandError, match="pod airflow/a cannot be read: "):
        explain_command.from_cluster("a", "airflow", KubeConfig())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>Log in</html>", "pod airflow/a cannot be read: JSONDecodeError"),
        (ApiException(404, "Not Found"), "pod airflow/a: 404 Not Found"),
        (ApiException(403, "Forbidden"), "pod airflow/a: 403 Forbidden"),
        (ConfigException("no kube-config"), "pod airflow/a cannot be read: ConfigException: no kube-config"),
        (MaxRetryError(None, "/api"), "the Kubernetes API server does not answer"),
        (OSError("connection reset"), "does not answer: connection reset"),
    ],
)
def test_cluster_that_does_not_give_the_pod(answer, content, said):
    answer(content)
    with pytest.raises(CommandError, match=said):
        explain_command.from_cluster("a", "airflow", KubeConfig())
