# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the lab's nodes do with workers. How pods are lost there, system tests show by what the ledger says.

CONFORMANCE_KUBECONFIG may name their API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from breeze.paths import ROOT
from cluster_lab.client import KubeClient
from cluster_lab.faults.plan import Fault, FaultPlan
from cluster_lab.faults.scenarios import AT_WORK
from cluster_lab.journal import JournalEntry, JournalEvent
from cluster_lab.lab import ClusterLab
from testbed.waiting import LONGEST_WAIT, wait_for

PODS = "/api/v1/namespaces/default/pods"
SLEEP = "import os, time; print(f'pid={os.getpid()} up'); time.sleep(600)"


@dataclass
class Lab:
    client: KubeClient
    cluster: ClusterLab
    folder: Path

    async def create(self, script: str, **base: Any) -> str:
        """Create a worker pod that runs a Python script, and return its name."""
        name = f"load-{uuid.uuid4().hex[:8]}"
        annotations = {"dag_id": "etl", "task_id": "load", "run_id": "r1", "try_number": "1"}
        worker = {"name": "base", "image": "airflow", "command": ["python"], "args": ["-u", "-c", script]}
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [worker | base]},
        }
        await self.client.request("POST", PODS, body=body)
        return name

    async def delete(self, name: str) -> None:
        await self.client.request("DELETE", f"{PODS}/{name}", body={"gracePeriodSeconds": 0})

    async def until_succeeded(self, name: str) -> dict[str, Any]:
        async with asyncio.timeout(LONGEST_WAIT):
            pod = await self.client.request("GET", f"{PODS}/{name}")
            while pod["status"]["phase"] != "Succeeded":
                await asyncio.sleep(0.05)
                pod = await self.client.request("GET", f"{PODS}/{name}")
        return pod

    def journal(self, name: str) -> list[JournalEntry]:
        return [entry for entry in self.cluster.journal if entry.pod == name]

    async def until_noted(self, name: str, event: JournalEvent) -> JournalEntry:
        def found() -> list[JournalEntry]:
            return [entry for entry in self.journal(name) if entry.event is event]

        return (await asyncio.to_thread(wait_for, f"{event} of {name} is in the journal", found))[0]

    def log(self, name: str) -> str:
        return "".join(path.read_text() for path in self.folder.glob(f"logs/*_{name}_*/base.log"))

    async def until_up(self, name: str) -> dict[str, int]:
        """Wait until the worker has written what it has to say, and return the processes that it names."""
        await asyncio.to_thread(wait_for, f"{name} is up", lambda: "up" in self.log(name))
        return {key: int(pid) for key, pid in (word.split("=") for word in self.log(name).split()[:-1])}


@contextlib.asynccontextmanager
async def start(folder: Path, **options: Any) -> AsyncIterator[Lab]:
    real = os.environ.get("CONFORMANCE_KUBECONFIG")
    kubeconfig = Path(real) if real else folder / "kubeconfig"
    cluster = ClusterLab(kubeconfig=kubeconfig, log_dir=folder / "logs", embedded=not real, **options)
    async with cluster.running(), KubeClient(kubeconfig) as client:
        lab = Lab(client, cluster, folder)
        yield lab
        for pod in (await client.request("GET", PODS))["items"]:
            await lab.delete(pod["metadata"]["name"])


async def test_a_worker_that_succeeds(tmp_path: Path) -> None:
    async with start(tmp_path) as lab:
        name = await lab.create("pass")
        pod = await lab.until_succeeded(name)
        (worker,) = pod["status"]["containerStatuses"]
        assert (worker["state"]["terminated"]["reason"], worker["ready"]) == ("Completed", False)
        assert {item["type"]: item["status"] for item in pod["status"]["conditions"]} == {
            "PodScheduled": "True",
            "Initialized": "True",
            "ContainersReady": "False",
            "Ready": "False",
        }
        bound, started, exited = lab.journal(name)
        assert [bound.event, started.event, exited.event] == ["bound", "started", "exited"]
        assert exited.exit_code == 0
        assert (bound.dag_id, bound.task_id, bound.run_id) == ("etl", "load", "r1")
        assert (bound.uid, bound.node) == (pod["metadata"]["uid"], pod["spec"]["nodeName"])


async def test_the_environment_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("HOSTNAME", "ONE", "TWO", "THREE", "SECRET")
    script = f"import os; print(sorted(f'{{k}}={{v}}' for k, v in os.environ.items() if k in {keys!r}))"
    from_field = {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [{"name": "TWO", "value": "pod"}, {"name": "THREE", "value": ""}, from_field]
    monkeypatch.setenv("SECRET", "of the lab")
    async with start(tmp_path, env={"ONE": "lab", "TWO": "lab"}) as lab:
        name = await lab.create(script, env=env)
        await lab.until_succeeded(name)
        assert str(sorted([f"HOSTNAME={name}", "ONE=lab", "TWO=pod", "THREE="])) in lab.log(name)


# Like Airflow's task process: in a group of its own, and without an environment that can be read.
@pytest.mark.parametrize("escape", ["env={}, process_group=0", "start_new_session=True"])
async def test_a_force_deleted_worker_is_killed_with_all_its_children(tmp_path: Path, escape: str) -> None:
    script = (
        "import os, subprocess, sys, time;"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], {escape});"
        "print(f'pid={os.getpid()} child={child.pid} up'); time.sleep(600)"
    )
    async with start(tmp_path) as lab:
        name = await lab.create(script)
        pids = await lab.until_up(name)
        await lab.delete(name)
        # The API server says that the pod is gone before or after that.
        assert (await lab.until_noted(name, JournalEvent.EXITED)).exit_code in (137, 143)
        assert not psutil.pid_exists(pids["pid"])
        assert not is_alive(pids["child"])


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_no_process_outlives_the_lab(tmp_path: Path) -> None:
    async with start(tmp_path) as lab:
        pids = await lab.until_up(await lab.create(SLEEP))
        assert psutil.pid_exists(pids["pid"])
    assert not psutil.pid_exists(pids["pid"])


def test_system_tests_play_every_way_to_lose_a_pod_before_its_process_starts() -> None:
    plan = FaultPlan.load(ROOT / "tests" / "dags" / "each_version" / "faults.yaml")
    played = {rule.fault for rule in plan.rules if rule.dag_id == "version_matrix"}
    # Each of these has a test of its own.
    assert played == {*Fault} - {*AT_WORK} - {Fault.REGISTRY_AWAY, Fault.SIDECAR_RUNS_ON}
