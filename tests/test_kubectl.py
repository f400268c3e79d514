# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``kubectl airflow-explain``: the real kubectl runs our plugin and reads the pod from a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_lab.conformance import Api, connect
from cluster_lab.control_plane import ControlPlane

BINARIES = os.environ.get("CONTROL_PLANE_BINARIES")

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.control_plane]

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def failed(exit_code: int, **more: Any) -> dict[str, Any]:
    """Make the status of a pod whose worker has failed."""
    state = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    base = {"name": "base", "image": "airflow", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Failed", "containerStatuses": [base | {"state": state}], **more}


PODS: dict[tuple[str, str], dict[str, Any]] = {
    ("airflow", "evicted"): failed(137, reason="Evicted", message="The node was low on resource: memory."),
    ("airflow", "own-error"): failed(1),
    ("default", "pending"): {},
}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    assert BINARIES is not None
    with ControlPlane(Path(BINARIES), tmp_path_factory.mktemp("control-plane")) as control_plane:
        with connect(control_plane.kubeconfig) as http:
            http.post("/api/v1/namespaces", json={"metadata": {"name": "airflow"}}).raise_for_status()
            for (namespace, name), status in PODS.items():
                api = Api(http, namespace)
                api.create(name)
                api.set_status(name, **status)
        yield control_plane


@pytest.fixture
def kubectl(control_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    """Give a function that runs kubectl, as somebody does whose PATH has our environment."""
    path = os.pathsep.join([str(BINARIES), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(control_plane.kubeconfig)}

    def run(*words: str, **changed: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", *words]
        return subprocess.run(command, env=env | changed, capture_output=True, text=True, check=False)

    return run


def test_kubectl_finds_the_plugin(kubectl: Kubectl) -> None:
    assert "kubectl-airflow_explain" in kubectl("plugin", "list").stdout


@pytest.mark.parametrize(("name", "code"), [("evicted", 0), ("own-error", 1)])
def test_a_pod_is_explained_as_its_manifest_is(kubectl: Kubectl, name: str, code: int) -> None:
    manifest = kubectl("get", "pod", name, "-n", "airflow", "-o", "json").stdout
    command = [Path(sys.executable).with_name("airflow-resilience"), "explain", "-", "-o", "json"]
    expected = subprocess.run(command, input=manifest, capture_output=True, text=True, check=False)
    told = kubectl("airflow-explain", name, "-n", "airflow", "-o", "json")
    assert (told.returncode, told.stdout) == (expected.returncode, expected.stdout)
    assert told.returncode == code, told.stderr
    (explained,) = json.loads(told.stdout)
    assert explained["pod"]["name"] == name


def test_the_pod_is_that_of_the_context(kubectl: Kubectl, control_plane: ControlPlane) -> None:
    told = kubectl("airflow-explain", "pending")
    assert told.returncode == 3, told.stderr
    assert "Pod default/pending" in told.stdout
    file = f"--kubeconfig={control_plane.kubeconfig}"
    elsewhere = kubectl("airflow-explain", "pending", file, "--context", "lab", KUBECONFIG="/none")
    assert (elsewhere.returncode, elsewhere.stdout) == (3, told.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone"], 'pods "gone" not found'),
        (["evicted"], 'pods "evicted" not found'),
        (["pending", "--context", "other"], "for specified context: other"),
        (["pending", "--kubeconfig", "/none"], "/none"),
        (["pending", "--policy", "/none"], "/none"),
        ([], "name"),
    ],
)
def test_what_cannot_be_answered(kubectl: Kubectl, words: list[str], said: str) -> None:
    told = kubectl("airflow-explain", *words)
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr
