# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Connecting with a credential plug-in that takes its time, for many namespaces."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_asyncio.client import ApiClient, Configuration, CoreV1Api

from airflow.providers.cncf.kubernetes_resilience.pods.api import api_clients
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodCreated
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime
from cluster_lab.apiserver import ApiServer

from ..support.waiting import wait_synced
from .conftest import TOKEN

Make = Callable[..., KubernetesRuntime]

MANY = tuple(f"team-{number}" for number in range(30))

PLUGIN = """
import json, pathlib, sys, time
with pathlib.Path(sys.argv[1]).open("a") as runs:
    print("run", file=runs)
time.sleep({seconds})
status = {{"token": "{token}"}}
answer = {{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}
print(json.dumps(answer))
"""


class Plugin:
    """A credential plug-in, named in the kubeconfig."""

    def __init__(self, folder: Path) -> None:
        self._kubeconfig, self._program, self._runs = (
            folder / "kubeconfig",
            folder / "plugin.py",
            folder / "runs",
        )

    def install(self, seconds: float) -> None:
        self._program.write_text(PLUGIN.format(seconds=seconds, token=TOKEN))
        kubeconfig = yaml.safe_load(self._kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [str(self._program), str(self._runs)],
            }
        }
        self._kubeconfig.write_text(yaml.safe_dump(kubeconfig))

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines())


@pytest.fixture
def plugin(make_runtime: Make, tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def test_a_credential_plugin_is_run_once_however_many_namespaces_there_are(
    make_runtime: Make, plugin: Plugin, server: ApiServer, inbox: Any, pod: Any
) -> None:
    plugin.install(seconds=0.5)
    runtime = make_runtime(namespaces=("default", *MANY))
    runtime.start()
    assert plugin.runs == 1
    assert wait_synced(runtime)
    runtime.submit(runtime.launcher.create, "launch-1", pod("a"))
    assert inbox.of(PodCreated).facts.ref.name == "a"


def test_a_plugin_that_does_not_end_is_named(make_runtime: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(team_name: str | None) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(api_clients, "_load", load)
    monkeypatch.setattr(api_clients, "CONNECT_SECONDS", 0.5)
    runtime = make_runtime(namespaces=MANY)
    text = (
        "Connecting to Kubernetes for creating pods took too long: [kubernetes_executor] config_file was not"
        " read, or its credential plug-in did not end, within 0.5 s"
    )
    with pytest.raises(TimeoutError, match=re.escape(text)):
        runtime.start()


def test_a_plugin_that_fails_is_run_once(make_runtime: Make, plugin: Plugin) -> None:
    plugin.install(seconds=0)
    plugin._program.write_text(plugin._program.read_text() + "\nsys.exit('nobody is logged in')\n")
    with pytest.raises(Exception, match="nobody is logged in"):
        make_runtime(namespaces=MANY).start()
    assert plugin.runs == 1


@pytest.fixture
def made_by_factory(
    make_runtime: Make, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[ApiClient]]:
    """A factory of the deployment, and the clients that it has made."""
    made: list[ApiClient] = []

    def factory() -> CoreV1Api:
        configuration = Configuration(host=server.url, api_key={"BearerToken": f"Bearer {TOKEN}"})
        made.append(ApiClient(configuration))
        return CoreV1Api(made[-1])

    monkeypatch.setattr(f"{__name__}.factory", factory, raising=False)
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__ASYNC_CLIENT_FACTORY", f"{__name__}.factory")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.delenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE")
    return made


def test_a_factory_of_the_deployment_makes_each_client(
    make_runtime: Make, made_by_factory: list[ApiClient]
) -> None:
    runtime = make_runtime(namespaces=("default", *MANY))
    runtime.start()
    assert wait_synced(runtime)
    assert len({id(client) for client in made_by_factory}) == 1 + 1 + len(MANY)
