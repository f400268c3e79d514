# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A runtime on an embedded API server, reached as the official provider would reach a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation
from airflow.providers.cncf.kubernetes_resilience.pods.thread.launcher import LAUNCH_ID_ANNOTATION
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import (
    KubernetesRuntime,
    RuntimeSettings,
)
from cluster_lab.api_proxy import ApiProxy
from cluster_lab.apiserver import ApiServer, running_server
from cluster_lab.conformance import Api, connect
from testbed.waiting import wait_for

from ..support.waiting import WAIT, wait_synced

T = TypeVar("T")
TOKEN = "lab-token"  # of a server that lives as long as a test
SELECTOR = "airflow-worker=1,airflow_executor_done!=True"


def worker(name: str, launch_id: str = "launch-1") -> dict[str, Any]:
    """A worker pod as the executor would create it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"airflow-worker": "1"},
            "annotations": {LAUNCH_ID_ANNOTATION: launch_id},
        },
        "spec": {"containers": [{"name": "base", "image": "airflow"}], "restartPolicy": "Never"},
    }


class Kubelet(Api):
    """Everybody else who works on pods: the kubelet, kubectl, a clean-up job."""

    def create(self, pod: dict[str, Any]) -> PodRef:
        created = self.http.post(self.pods, json=pod).raise_for_status().json()["metadata"]
        return PodRef(created["namespace"], created["name"], created["uid"])

    def read(self, name: str) -> dict[str, Any] | None:
        response = self.http.get(self.path(name))
        return None if response.status_code == 404 else response.raise_for_status().json()

    def labels(self, name: str, **labels: str) -> None:
        self.patch(name, {"metadata": {"labels": labels}}).raise_for_status()

    def bind(self, name: str, node: str) -> None:
        super().bind(name, node).raise_for_status()

    def delete(self, name: str, grace: int = 0) -> None:
        super().delete(name, gracePeriodSeconds=grace).raise_for_status()


class Inbox(SimpleQueue[Any]):
    """The executor's inbox, read with patience."""

    def next(self) -> Any:
        return self.get(timeout=WAIT)

    def observation(
        self, name: str, wanted: Callable[[PodObservation], bool] = lambda _: True
    ) -> PodObservation:
        """Skip to the next observation of a pod that is as wanted."""
        while True:
            message = self.next()
            if isinstance(message, PodObservation) and message.facts.ref.name == name and wanted(message):
                return message

    def of(self, kind: type[T]) -> T:
        """Skip to the next message of a kind."""
        while True:
            if isinstance(message := self.next(), kind):
                return message


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running_server(token=TOKEN, run_controllers=False, bookmark_interval=0.2) as server:
        yield server


@pytest.fixture
def proxy(server: ApiServer, tmp_path: Path) -> Iterator[ApiProxy]:
    """What stands between the runtime and the API server, and does to requests what no API server would."""
    server.write_kubeconfig(tmp_path / "kubeconfig-of-the-server")
    with ApiProxy(tmp_path / "kubeconfig-of-the-server") as proxy:
        yield proxy


@pytest.fixture
def kubelet(server: ApiServer, tmp_path: Path) -> Iterator[Kubelet]:
    server.write_kubeconfig(tmp_path / "kubeconfig-of-the-kubelet")
    with connect(tmp_path / "kubeconfig-of-the-kubelet") as http:
        yield Kubelet(http, "default")


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def make_runtime(
    proxy: ApiProxy, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., KubernetesRuntime]]:
    """Make runtimes by settings; each is stopped, and none may leave a thread behind."""
    proxy.write_kubeconfig(tmp_path / "kubeconfig", TOKEN)
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "kubeconfig"))
    made: list[KubernetesRuntime] = []

    def make(**settings: Any) -> KubernetesRuntime:
        defaults = {"namespaces": ("default",), "label_selector": SELECTOR, "concurrency": 8}
        made.append(KubernetesRuntime(RuntimeSettings(**{**defaults, **settings}), inbox.put))
        return made[-1]

    yield make
    for runtime in made:
        runtime.stop(0)
    assert not [thread for thread in threading.enumerate() if thread.name == "kubernetes-resilience"]


@pytest.fixture
def runtime(make_runtime: Callable[..., KubernetesRuntime], proxy: ApiProxy) -> KubernetesRuntime:
    """A started runtime whose watch is open."""
    runtime = make_runtime()
    runtime.start()
    assert wait_synced(runtime)
    wait_for("one watch is open", lambda: proxy.open_watches == 1, show=lambda: proxy.open_watches)
    return runtime


@pytest.fixture
def pod() -> Callable[..., dict[str, Any]]:
    return worker
