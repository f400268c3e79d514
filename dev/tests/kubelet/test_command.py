# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The lab as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import psutil

from cluster_lab.client import KubeClient
from cluster_lab.hostname import pod_hostname
from cluster_lab.journal import open_journal

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "worker", "annotations": {"dag_id": "etl", "task_id": "load"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "base",
                "image": "airflow",
                "args": ["sh", "-c", "echo $GREETING $HOME $$ > $TARGET; exec sleep 600"],
            }
        ],
    },
}


async def test_the_process_starts_workers_and_stops_them_on_sigterm(tmp_path):
    target, plan, kubeconfig = tmp_path / "target", tmp_path / "plan.yaml", tmp_path / "kubeconfig"
    plan.write_text("rules: [{task_id: other, fault: vanish}]")
    options = ["--nodes", "1", "--embedded", "--kubeconfig", kubeconfig, "--plan", plan]
    options += ["--journal", tmp_path / "journal.jsonl", "--log-dir", tmp_path / "logs"]
    options += ["--env", "GREETING=hello", f"TARGET={target}"]
    lab = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cluster_lab", *options, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            ready = (await lab.stdout.readline()).decode()
            async with KubeClient(kubeconfig) as client:
                assert ready == f"cluster lab ready: {client.url}\n"
                await client.request("POST", "/api/v1/namespaces/default/pods", body=POD)
                while not (target.exists() and target.read_text().endswith("\n")):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            greeting, home, pid = target.read_text().split()
            # Not the home of whoever runs the lab: there may be a .bashrc, which bash reads in a worker.
            assert (greeting, home) == ("hello", "/")
            lab.send_signal(signal.SIGTERM)
            assert await lab.wait() == 0
        assert not psutil.pid_exists(int(pid))
        assert [entry.event for entry in open_journal(tmp_path / "journal.jsonl").read()] == [
            "bound",
            "started",
        ]
    finally:
        if lab.returncode is None:
            lab.kill()
            await lab.wait()


def test_the_host_name_of_a_worker_is_that_of_its_pod(monkeypatch):
    monkeypatch.setenv("HOSTNAME", "load-abc")
    assert pod_hostname() == "load-abc"
    monkeypatch.delenv("HOSTNAME")
    assert pod_hostname() == os.uname().nodename
