# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Worker pods as the API server has them, and what stands for the thread that talks to it.

For the executor's unit tests, in which the test says what happens next; the chaos machine's cluster is made
of the same parts. The thread's own tests have a cluster below it (``unit/pods/conftest.py``), and
``integration`` has the lab's API server.
"""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

import jwt

from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef, read_pod
from cluster_lab.apiserver.selectors import parse_selector

TEMPLATE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "worker"},
    "spec": {"containers": [{"name": "base", "image": "airflow"}], "restartPolicy": "Never"},
}
"""The deployment's pod template."""


class Pod:
    """A worker pod as the API server would show it: what was created, with a status."""

    def __init__(self, body: dict[str, Any], uid: str | None = None):
        self.manifest = copy.deepcopy(body)
        self.manifest["metadata"] |= {
            "uid": uid or str(uuid.uuid4()),
            "creationTimestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self.manifest["status"] = {"phase": "Pending"}

    @property
    def uid(self) -> str:
        return self.manifest["metadata"]["uid"]

    @property
    def name(self) -> str:
        return self.manifest["metadata"]["name"]

    @property
    def labels(self) -> dict[str, str]:
        return self.manifest["metadata"]["labels"]

    @property
    def annotations(self) -> dict[str, str]:
        return self.manifest["metadata"]["annotations"]

    @property
    def ref(self) -> PodRef:
        return self.facts().ref

    @property
    def launch_id(self) -> str:
        return self.annotations["airflow-resilience/launch-id"]

    @property
    def launch_number(self) -> int:
        return int(self.annotations["airflow-resilience/launch-number"])

    @property
    def base(self) -> dict[str, Any]:
        """The worker container as it was asked for."""
        return next(item for item in self.manifest["spec"]["containers"] if item["name"] == "base")

    @property
    def workload(self) -> dict[str, Any]:
        args = self.base["args"]
        return json.loads(args[args.index("--json-string") + 1])

    @property
    def claims(self) -> dict[str, Any]:
        """What the worker's token says."""
        return jwt.decode(self.workload["token"], options={"verify_signature": False})

    def facts(self, **status: Any) -> PodFacts:
        """Read the pod with that status (which then stays)."""
        if status:
            self.manifest["status"] = status
        return read_pod(copy.deepcopy(self.manifest))

    def become(self, like: dict[str, Any]) -> Pod:
        """Take over everything that another manifest says about a pod's life, but not whose pod it is."""
        like = copy.deepcopy(like)
        self.manifest["status"] = like["status"]
        for name in ("nodeName", "initContainers", "restartPolicy", "terminationGracePeriodSeconds"):
            if name in like["spec"]:
                self.manifest["spec"][name] = like["spec"][name]
        if ends := like["metadata"].get("deletionTimestamp"):
            self.manifest["metadata"]["deletionTimestamp"] = ends
        return self

    def deleting(self, ends: datetime) -> Pod:
        """Ask for its deletion, with the time at which its grace period ends."""
        self.manifest["metadata"]["deletionTimestamp"] = ends.isoformat()
        return self

    def created(self, at: str) -> Pod:
        self.manifest["metadata"]["creationTimestamp"] = at
        return self

    def strip(self) -> Pod:
        """Take away what only this executor writes, so that the official one could have created it."""
        for name in [name for name in self.annotations if name.startswith("airflow-resilience/")]:
            del self.annotations[name]
        return self


PodT = TypeVar("PodT", bound=Pod)


class Cluster:
    """The pods that exist, by UID, and how the API server answers."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.outage: Exception | None = None
        """Raised by every request while it is set."""
        self.refused: dict[str, Exception] = {}
        """Raised by a change of the pod with that UID."""
        self.unlisted: dict[str, Exception] = {}
        """Raised by a list of the pods in that namespace."""

    def add(self, pod: Pod) -> Pod:
        self.pods[pod.ref.uid] = pod
        return pod

    def remove(self, pod: Pod) -> None:
        self.pods.pop(pod.ref.uid, None)

    def answer(self) -> None:
        if self.outage:
            raise self.outage


class FakeLauncher:
    """The commands of the real one; only those that are waited for do anything."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self.listed: list[tuple[Any, str, str | None]] = []

    async def create(self, launch_id, body): ...

    async def cancel(self, launch_id): ...

    async def delete(self, ref, resource_version=None):
        self._cluster.pods.pop(ref.uid, None)

    async def clean_up(self, ref):
        await self.delete(ref)

    async def look_for(self, namespace, name, launch_id): ...

    async def mark_done(self, ref):
        if pod := self._cluster.pods.get(ref.uid):
            pod.labels["airflow_executor_done"] = "True"

    async def stop_and_keep(self, ref):
        await self.mark_done(ref)

    async def confirm(self, ref): ...

    async def adopt(self, ref, labels):
        self._cluster.answer()
        if error := self._cluster.refused.get(ref.uid):
            raise error
        if pod := self._cluster.pods.get(ref.uid):
            pod.labels.update(labels)

    async def list_pods(self, namespace, label_selector):
        self.listed.append((namespace, label_selector))
        self._cluster.answer()
        if error := self._cluster.unlisted.get(namespace):
            raise error
        found = [pod.facts() for pod in select(self._cluster.pods.values(), label_selector)]
        return [facts for facts in found if namespace in (None, facts.ref.namespace)]


class PausedRuntime:
    """Stands for the Kubernetes thread: what it is asked for waits until somebody has it carried out."""

    def __init__(self) -> None:
        self.is_alive = False
        self.commands: list[tuple[Any, tuple[Any, ...]]] = []

    def crash(self) -> None:
        """End the thread, and with it all that it was asked for."""
        self.commands.clear()
        self.is_alive = False

    def submit(self, function: Any, *args: Any) -> None:
        if not self.is_alive:
            raise RuntimeError("the Kubernetes runtime is not running")
        self.commands.append((function, args))

    def call(self, coroutine: Any, timeout: float) -> Any:
        if not self.is_alive:
            coroutine.close()
            raise RuntimeError("the Kubernetes runtime is not running")
        return asyncio.run(coroutine)


def select(pods: Iterable[PodT], label_selector: str) -> list[PodT]:
    """Return the pods that a list with this selector has."""
    wanted = parse_selector(label_selector)
    return [pod for pod in pods if all(requirement.matches(pod.labels) for requirement in wanted)]
