# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the lab's nodes do with workers. How pods are lost there, system tests show by what the ledger says.

CONFORMANCE_KUBECONFIG may name their API server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from anyio.from_thread import start_blocking_portal

from breeze.paths import ROOT
from cluster_lab.conformance import Api, connect
from cluster_lab.faults.plan import Fault, load_plan
from cluster_lab.faults.scenarios import AT_WORK
from cluster_lab.journal import JournalEntry, JournalEvent
from cluster_lab.lab import ClusterLab
from testbed.waiting import wait_for

SLEEP = "import os, time; print(f'pid={os.getpid()} up'); time.sleep(600)"


class Lab(NamedTuple):
    api: Api
    cluster: ClusterLab

    def create(self, name: str, script: str) -> None:
        """Create a worker pod that runs a Python script."""
        worker = {"name": "base", "image": "airflow", "command": ["python"], "args": ["-u", "-c", script]}
        self.api.create(name, schedulerName="default-scheduler", containers=[worker])

    def wait_until(self, name: str, event: JournalEvent) -> list[JournalEntry]:
        """Wait for an event of a pod, and return all of them."""

        def found() -> list[JournalEntry]:
            entries = [entry for entry in self.cluster.journal if entry.pod == name]
            return entries if any(entry.event is event for entry in entries) else []

        return wait_for(f"{event} of {name} is in the journal", found)

    def wait_until_up(self, name: str) -> dict[str, int]:
        """Wait until the worker has written what it has to say, and return the processes that it names."""

        def log() -> str:
            return "".join(path.read_text() for path in self.cluster.log_dir.glob(f"*_{name}_*/base.log"))

        wait_for(f"{name} is up", lambda: "up" in log())
        return {key: int(pid) for key, pid in (word.split("=") for word in log().split()[:-1])}


@contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    real = os.environ.get("CONFORMANCE_KUBECONFIG")
    kubeconfig = Path(real) if real else folder / "kubeconfig"
    cluster = ClusterLab(kubeconfig=kubeconfig, log_dir=folder / "logs", embedded=not real, nodes=2)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(cluster.running()),
        connect(kubeconfig) as http,
    ):
        api = Api.in_new_namespace(http)
        yield Lab(api, cluster)
        api.clean_up()


def test_a_worker_that_succeeds(tmp_path: Path) -> None:
    with running_lab(tmp_path) as lab:
        lab.create("load", "pass")
        bound, started, exited = lab.wait_until("load", JournalEvent.EXITED)
        wait_for("it has succeeded", lambda: lab.api.get("load")["status"]["phase"] == "Succeeded")
        pod = lab.api.get("load")
        (worker,) = pod["status"]["containerStatuses"]
        assert (worker["state"]["terminated"]["reason"], worker["ready"]) == ("Completed", False)
        assert {item["type"]: item["status"] for item in pod["status"]["conditions"]} == {
            "PodScheduled": "True",
            "Initialized": "True",
            "ContainersReady": "False",
            "Ready": "False",
        }
        assert (bound.event, started.event, exited.exit_code) == ("bound", "started", 0)
        assert (bound.uid, bound.node) == (pod["metadata"]["uid"], pod["spec"]["nodeName"])


# Like Airflow's task process: in a group of its own, and without an environment that can be read.
@pytest.mark.parametrize("escape", ["env={}, process_group=0", "start_new_session=True"])
def test_a_force_deleted_worker_is_killed_with_all_its_children(tmp_path: Path, escape: str) -> None:
    script = (
        "import os, subprocess, sys, time;"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], {escape});"
        "print(f'pid={os.getpid()} child={child.pid} up'); time.sleep(600)"
    )
    with running_lab(tmp_path) as lab:
        lab.create("load", script)
        pids = lab.wait_until_up("load")
        lab.api.delete("load", gracePeriodSeconds=0)
        # The API server says that the pod is gone before or after that.
        noted = lab.wait_until("load", JournalEvent.EXITED)
        assert {entry.exit_code for entry in noted if entry.event is JournalEvent.EXITED} <= {137, 143}
        assert not psutil.pid_exists(pids["pid"])
        assert not is_alive(pids["child"])


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_no_process_outlives_the_lab(tmp_path: Path) -> None:
    with running_lab(tmp_path) as lab:
        lab.create("load", SLEEP)
        pids = lab.wait_until_up("load")
        assert psutil.pid_exists(pids["pid"])
    assert not psutil.pid_exists(pids["pid"])


def test_system_tests_play_every_way_to_lose_a_pod_before_its_process_starts() -> None:
    plan = load_plan(ROOT / "tests" / "dags" / "each_version" / "faults.yaml")
    played = {rule.fault for rule in plan if rule.dag_id == "version_matrix"}
    # Each of these has a test of its own.
    assert played == {*Fault} - {*AT_WORK} - {Fault.REGISTRY_AWAY, Fault.SIDECAR_RUNS_ON}
