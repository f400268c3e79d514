# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The control plane itself; ``./breeze testing conformance`` says where its programs are."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import httpx
import psutil
import pytest

from cluster_lab.conformance import connect_kubeconfig
from cluster_lab.control_plane import ControlPlane
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


def test_the_api_server_can_be_killed_and_comes_back_with_everything(control_plane, http):
    created = http.post(PODS, json=pod("kept")).raise_for_status().json()

    control_plane.kill_apiserver()
    with pytest.raises(httpx.ConnectError):
        http.get(PODS)
    control_plane.start_apiserver()

    # The kubeconfig that http was made from is still good.
    found = http.get(f"{PODS}/kept").raise_for_status().json()
    assert found["metadata"]["uid"] == created["metadata"]["uid"]


async def test_logs_come_from_the_nodes_of_the_lab(control_plane, http, tmp_path):
    async with ClusterLab(kubeconfig=control_plane.kubeconfig, nodes=1, log_dir=tmp_path):
        body = pod("speaker", command=["python"], args=["-c", "print('hello')"])
        http.post(PODS, json=body).raise_for_status()
        async with asyncio.timeout(LOG_TIMEOUT):
            while "hello" not in await asyncio.to_thread(_log, http, "speaker"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


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
