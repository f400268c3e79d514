# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster_lab.api_proxy import ApiProxy
from cluster_lab.apiserver import ApiServer
from cluster_lab.apiserver.patches import MERGE
from cluster_lab.client import KubeClient
from cluster_lab.faults.plan import FaultPlan, FaultRule
from cluster_lab.journal import JournalEntry, JournalEvent, open_journal
from cluster_lab.lab import ClusterLab
from testbed.waiting import LONGEST_WAIT, wait_for

PODS = "/api/v1/namespaces/default/pods"


def summary(event: dict[str, Any]) -> str:
    """What an event says about a pod, in one line."""
    pod = event["object"]
    status = pod.get("status", {})
    words = ["gone:"] if event["type"] == "DELETED" else []
    words += filter(None, [status.get("phase"), status.get("reason")])
    for item in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        state, detail = next(iter(item["state"].items()))
        if state == "running":
            words.append(f"{item['name']}=running")
        elif state == "waiting":
            words.append(f"{item['name']}={detail['reason']}")
        else:
            words.append(f"{item['name']}={detail['reason']}/{detail['exitCode']}")
    for condition in status.get("conditions", []):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            words.append(condition["reason"])
    if pod["metadata"].get("deletionTimestamp"):
        words.append("deleting")
    return " ".join(words)


@dataclass
class Cluster:
    """A lab under test, and everything that a watch on its pods has said."""

    lab: ClusterLab
    client: KubeClient
    journal_path: Path
    log_dir: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def watch(self, version: str) -> None:
        async for event in self.client.watch(PODS, {"resourceVersion": version}):
            async with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    async def create(self, task_id: str, script: str = "pass", **spec: Any) -> str:
        """Create a worker pod that runs a Python script, and return its name."""
        name = f"{task_id}-{uuid.uuid4().hex[:8]}"
        annotations = {"dag_id": "etl", "task_id": task_id, "run_id": "r1", "try_number": "1"}
        base = {"name": "base", "image": "airflow", "command": ["python"], "args": ["-u", "-c", script]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "containers": [base | spec.pop("base", {}), *spec.pop("sidecars", [])],
                "terminationGracePeriodSeconds": 20,
                **spec,
            },
        }
        await self.client.request("POST", PODS, body=body)
        return name

    async def delete(self, name: str, grace_seconds: int | None = None) -> None:
        body = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        await self.client.request("DELETE", f"{PODS}/{name}", body=body)

    async def change(self, name: str, patch: dict[str, Any]) -> None:
        await self.client.request("PATCH", f"{PODS}/{name}", body=patch, content_type=MERGE)

    def history(self, name: str) -> list[str]:
        """What was seen of a pod, without repetitions and from the time on that the kubelet had it."""
        seen: list[str] = []
        for event in self.events:
            pod = event["object"]
            if pod["metadata"]["name"] == name and pod.get("status", {}).get("startTime"):
                line = summary(event)
                if seen[-1:] != [line]:
                    seen.append(line)
        return seen

    def latest(self, name: str) -> dict[str, Any]:
        """The pod as it was seen last."""
        return next(
            event["object"] for event in reversed(self.events) if event["object"]["metadata"]["name"] == name
        )

    def conditions(self, name: str) -> dict[str, tuple[str, str | None]]:
        """The status of each condition of the pod, as it was seen last, and its reason."""
        found = self.latest(name)["status"].get("conditions", [])
        return {item["type"]: (item["status"], item.get("reason")) for item in found}

    async def until(self, what: str, condition: Callable[[], bool], show: Callable[[], Any]) -> None:
        """Wait for something that a watch event brings about."""
        try:
            async with self.changed, asyncio.timeout(LONGEST_WAIT):
                await self.changed.wait_for(condition)
        except TimeoutError:
            pytest.fail(f"waited in vain until {what}; last seen: {show()!r}")

    async def until_seen(self, name: str, line: str) -> None:
        await self.until(
            f"{name} is {line!r}", lambda: line in self.history(name), lambda: self.history(name)
        )

    def journal(self, name: str) -> list[JournalEntry]:
        return [entry for entry in open_journal(self.journal_path).read() if entry.pod == name]

    def journal_events(self, name: str) -> list[str]:
        return [entry.event for entry in self.journal(name)]

    async def until_logged(self, name: str, text: str) -> None:
        """Wait until the worker container has written something."""
        await asyncio.to_thread(
            wait_for,
            f"{name} has written {text!r}",
            lambda: text in self.log(name),
            show=lambda: self.log(name),
        )

    def log(self, name: str) -> str:
        return "".join(path.read_text() for path in self.log_dir.glob(f"*_{name}_*/base.log"))

    async def until_journaled(self, name: str, event: JournalEvent) -> None:
        await asyncio.to_thread(
            wait_for,
            f"{event} of {name} is in the journal",
            lambda: event in self.journal_events(name),
            show=lambda: self.journal_events(name),
        )


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[ApiProxy]:
    """A proxy before an API server that is not the lab's own; the kubeconfig of the labs to come is its."""
    async with ApiServer(token="secret") as server:
        server.write_kubeconfig(tmp_path / "kubeconfig-of-the-server")
        with ApiProxy(tmp_path / "kubeconfig-of-the-server") as proxy:
            proxy.write_kubeconfig(tmp_path / "kubeconfig")
            yield proxy


StartCluster = Callable[..., contextlib.AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def start_cluster(tmp_path: Path) -> StartCluster:
    """Start a lab of two nodes with these fault rules; unless embedded, on the server of the kubeconfig.

    CONFORMANCE_KUBECONFIG names a cluster to use in place of an embedded server, without nodes.
    """

    @contextlib.asynccontextmanager
    async def start(*rules: FaultRule, embedded: bool = True, **options: Any) -> AsyncIterator[Cluster]:
        journal, log_dir = tmp_path / "journal.jsonl", tmp_path / "logs"
        real = os.environ.get("CONFORMANCE_KUBECONFIG") if embedded else None
        kubeconfig = Path(real) if real else tmp_path / "kubeconfig"
        lab = ClusterLab(
            kubeconfig=kubeconfig,
            nodes=2,
            embedded=embedded and not real,
            plan=FaultPlan(rules),
            journal=journal,
            log_dir=log_dir,
            **options,
        )
        async with lab, KubeClient(kubeconfig) as client:
            # The watch goes on from the list, so that no state of a pod is missed, however late it begins.
            listed = await client.request("GET", PODS)
            events = [{"type": "ADDED", "object": pod} for pod in listed["items"]]
            cluster = Cluster(lab, client, journal, log_dir, events)
            watching = asyncio.create_task(cluster.watch(listed["metadata"]["resourceVersion"]))
            try:
                yield cluster
            finally:
                watching.cancel()
                await asyncio.wait({watching})
                if real:
                    # The next lab has nodes of the same names, and would find them there.
                    await cluster.client.request("DELETE", PODS, body={"gracePeriodSeconds": 0})

    return start
