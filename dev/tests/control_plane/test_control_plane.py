# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The control plane itself; ``./breeze testing conformance`` says where its programs are."""

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil
import pytest

from cluster_lab.conformance import Api, condition, connect_kubeconfig
from cluster_lab.control_plane import ControlPlane
from cluster_lab.control_plane_options import NodeTimes
from cluster_lab.kubelet import node as node_module
from cluster_lab.lab import ClusterLab
from cluster_lab.managed_process import ProcessError

BINARIES = os.environ.get("CONTROL_PLANE_BINARIES")
PODS = "/api/v1/namespaces/default/pods"
LOG_TIMEOUT = 60

pytestmark = [pytest.mark.long, pytest.mark.control_plane]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("control-plane")


@pytest.fixture(scope="module")
def control_plane(home):
    with ControlPlane(Path(BINARIES), home) as control_plane:
        yield control_plane


@pytest.fixture
def http(control_plane):
    with connect_kubeconfig(control_plane.kubeconfig) as http:
        yield http


def pod(name, **base):
    container = {"name": "base", "image": "airflow"} | base
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def test_a_pod_needs_no_service_account(http):
    response = http.post(PODS, json=pod("plain"))
    assert response.status_code == 201, response.text


def test_who_has_no_token_is_not_let_in(http):
    assert http.get(PODS, headers={"Authorization": ""}).status_code == 401
    assert http.get(PODS, headers={"Authorization": "Bearer other"}).status_code == 401


def test_the_api_server_can_be_killed_and_comes_back_with_everything(control_plane, http):
    created = http.post(PODS, json=pod("kept")).raise_for_status().json()

    control_plane.kill_apiserver()
    with pytest.raises(httpx.ConnectError):
        http.get(PODS)
    control_plane.start_apiserver()

    # The kubeconfig that http was made from is still good.
    found = http.get(f"{PODS}/kept").raise_for_status().json()
    assert found["metadata"]["uid"] == created["metadata"]["uid"]


def test_a_paused_api_server_does_not_answer(control_plane, http):
    with control_plane.paused(), pytest.raises(httpx.TimeoutException):
        http.get(PODS, timeout=0.5)

    assert http.get(PODS).status_code == 200


async def test_logs_come_from_the_nodes_of_the_lab(control_plane, http, tmp_path):
    async with ClusterLab(kubeconfig=control_plane.kubeconfig, nodes=1, log_dir=tmp_path):
        body = pod("speaker", command=["python"], args=["-c", "print('hello')"])
        http.post(PODS, json=body).raise_for_status()
        async with asyncio.timeout(LOG_TIMEOUT):
            while "hello" not in await asyncio.to_thread(_log, http, "speaker"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def test_pods_leave_a_node_that_is_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(node_module, "HEARTBEAT_SECONDS", 0.5)
    times = NodeTimes(grace_seconds=4, toleration_seconds=1)
    with ControlPlane(Path(BINARIES), tmp_path, times) as control_plane:
        async with ClusterLab(kubeconfig=control_plane.kubeconfig, nodes=2):
            found = await asyncio.to_thread(_lose_a_node, control_plane.kubeconfig)
    assert found["status"] == "Unknown"


def _lose_a_node(kubeconfig):
    """Wait until a pod is evicted from a node that nobody reports; return the node's condition then."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
    with connect_kubeconfig(kubeconfig) as http:
        api = Api.in_new_namespace(http)
        node = api.create_node(status={"conditions": [ready]})
        api.create("a")
        api.bind("a", node).raise_for_status()
        with api.watch(resourceVersion="0") as events:
            next(pod for _, pod in events if "deletionTimestamp" in pod["metadata"])
        return condition(http.get(f"/api/v1/nodes/{node}").json(), "Ready")


def test_nothing_is_left_of_one_that_cannot_start(home, tmp_path):
    binaries = tmp_path / "binaries"
    binaries.mkdir()
    for name in ("etcd", "kube-controller-manager", "kube-scheduler"):
        (binaries / name).symlink_to(Path(BINARIES) / name)
    broken = binaries / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho what is wrong\nexit 3\n")
    broken.chmod(0o755)
    (tmp_path / "home").mkdir()
    before = _children()

    with pytest.raises(ProcessError, match=r"kube-apiserver ended \(3\):\nwhat is wrong"):
        ControlPlane(binaries, tmp_path / "home").__enter__()

    assert _children() == before


def _log(http, name):
    with contextlib.suppress(httpx.HTTPStatusError):
        return http.get(f"{PODS}/{name}/log").raise_for_status().text
    return ""


def _children():
    return {child.pid for child in psutil.Process().children(recursive=True)}
