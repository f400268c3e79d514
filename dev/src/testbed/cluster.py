# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the tests see of the cluster, and do to it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from cluster_lab.apiserver import RequestInfo
from cluster_lab.apiserver.patches import MERGE, STRATEGIC_MERGE
from cluster_lab.client import ApiError, JsonObject, KubeClient
from cluster_lab.faults.plan import FAULT_ANNOTATION, Fault
from cluster_lab.kubelet.pod import GO_ON_ANNOTATION
from cluster_lab.kubelet.status import timestamp
from testbed.waiting import wait_for

T = TypeVar("T")
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
OWNER_LABEL = "airflow-worker"
"""Its value is the job id of the scheduler to which a worker pod belongs."""

EXECUTOR_LABEL = "airflow-resilience/executor"
"""Its value is which of the scheduler's executors has launched a worker pod, if it is one of ours."""

PATIENCE = 120.0
"""Seconds for which a request is repeated: an API server on a busy machine gives one up after 34."""

DONE_LABEL = "airflow_executor_done"
"""On a pod that is kept and that no executor looks at any more."""


# Which requests of the scheduler are meant, for the holds and faults of the proxy.


def creates_pod(info: RequestInfo) -> bool:
    """Whether a pod is created."""
    return (info.verb, info.resource, info.subresource) == ("create", "pods", "")


def labels_pod(info: RequestInfo) -> bool:
    """Whether a pod gets a label: that of another scheduler, or the one that it is done."""
    return (info.verb, info.resource, info.subresource) == ("patch", "pods", "")


def deletes_pod(info: RequestInfo) -> bool:
    """Whether a pod is deleted."""
    return (info.verb, info.resource) == ("delete", "pods")


class Cluster:
    """The worker pods of one deployment. To be used from any thread; made by :meth:`opened`."""

    def __init__(self, portal: BlockingPortal, client: KubeClient) -> None:
        self._portal = portal
        self._client = client

    @classmethod
    @contextmanager
    def opened(cls, kubeconfig: Path) -> Iterator[Self]:
        """Connect to the API server of a kubeconfig, on an event loop in a thread of its own."""
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(portal.call(KubeClient, kubeconfig, PATIENCE)) as client,
        ):
            yield cls(portal, client)

    def version(self) -> str:
        """Return the version of the cluster's state now, for :meth:`owners_since`."""
        version: str = self._request("GET", PODS, {"limit": 1})["metadata"]["resourceVersion"]
        return version

    def pods(self, run_id: str) -> list[JsonObject]:
        """Return the pods of a run that exist now."""
        return [pod for pod in self._pods() if pod["metadata"].get("annotations", {}).get("run_id") == run_id]

    def labels(self, run_id: str) -> dict[str, dict[str, str]]:
        """Return the labels of the pods of a run that are in use, by their task, of which none is mapped."""
        return {
            pod["metadata"]["annotations"]["task_id"]: pod["metadata"]["labels"]
            for pod in self.pods(run_id)
            if _is_in_use(pod)
        }

    def names(self) -> list[str]:
        """Return the names of all pods that exist now."""
        return [pod["metadata"]["name"] for pod in self._pods()]

    def unfinished_business(self, run_id: str) -> list[str]:
        """Return the pods of a run that are in use; failed ones are kept, with a label."""
        return [pod["metadata"]["name"] for pod in self.pods(run_id) if _is_in_use(pod)]

    def wait_until_done(self, run_id: str) -> None:
        """Wait until no pod of a run is in use."""
        left = partial(self.unfinished_business, run_id)
        wait_for("no pod is left", lambda: not left(), show=left)

    def is_done(self, name: str) -> bool:
        """Tell whether a pod is gone, or no executor looks at it any more."""
        return all(DONE_LABEL in pod["metadata"]["labels"] for pod in self._pods(name))

    def owner(self, name: str) -> int | None:
        """Return the scheduler job that a pod belongs to, None if there is no such pod."""
        found = self._pods(name)
        return int(found[0]["metadata"]["labels"][OWNER_LABEL]) if found else None

    def wait_for_owner(self, names: Iterable[str], owner: int) -> None:
        """Wait until pods have been adopted by a scheduler job, whose label they have then."""
        pods = set(names)
        wait_for(
            f"{', '.join(pods)} belong to scheduler job {owner}",
            lambda: {self.owner(pod) for pod in pods} == {owner},
        )

    def hand_over(self, name: str, owner: int) -> None:
        """Put the label of a scheduler on a pod."""
        self._patch_metadata(name, "labels", OWNER_LABEL, str(owner))

    def delete(self, name: str) -> None:
        """Delete a pod at once, as somebody would with ``kubectl delete --force``."""
        self._request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def clear(self) -> None:
        """Delete all pods at once, and let all nodes take pods again."""
        for name in self.names():
            self._wait_for(self._delete_if_there(name, {"gracePeriodSeconds": 0}))
        for node in self.nodes():
            self.cordon(node, unschedulable=False)
            self.taint(node, tainted=False)

    def is_ending(self, name: str) -> bool:
        """Tell whether the deletion of a pod was asked for, and it is still there."""
        return any("deletionTimestamp" in pod["metadata"] for pod in self._pods(name))

    def lose(self, name: str, fault: Fault) -> None:
        """
        Have a pod lost whose worker runs.

        :param fault: how, one of :data:`.AT_WORK`
        """
        self._patch_metadata(name, "annotations", FAULT_ANNOTATION, fault.value)

    def go_on(self, *names: str) -> None:
        """End the delay that the fault of each of these pods has."""
        for name in names:
            self._patch_metadata(name, "annotations", GO_ON_ANNOTATION, "now")

    def evict(self, name: str) -> None:
        """Evict a pod through the API, as ``kubectl drain`` and autoscalers do."""
        self._disrupt(name, "EvictionByEvictionAPI", "Eviction API: evicting")
        body = {"apiVersion": self._version_of_evictions(), "kind": "Eviction", "metadata": {"name": name}}
        self._request("POST", f"{PODS}/{name}/eviction", body=body)

    def preempt(self, name: str) -> None:
        """Delete a pod as the scheduler does to make room for another one."""
        self._disrupt(name, "PreemptionByScheduler", "default-scheduler: preempting to accommodate a pod")
        self._request("DELETE", f"{PODS}/{name}")

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        return [node["metadata"]["name"] for node in self._request("GET", NODES)["items"]]

    def cordon(self, *nodes: str, unschedulable: bool = True) -> None:
        """Let no pod be placed on these nodes any more, or let it again."""
        for node in nodes:
            patch = {"spec": {"unschedulable": unschedulable}}
            self._request("PATCH", f"{NODES}/{node}", body=patch, content_type=STRATEGIC_MERGE)

    @contextmanager
    def quota(self, pods: int) -> Iterator[None]:
        """Let there be no more pods that have not ended. The embedded API server knows no quotas."""
        quota = {"metadata": {"name": "lab"}, "spec": {"hard": {"pods": str(pods)}}}
        self._request("POST", QUOTAS, body=quota)
        try:
            wait_for(
                "the quota is in force",
                lambda: "hard" in self._request("GET", f"{QUOTAS}/lab").get("status", {}),
            )
            yield
        finally:
            self._request("DELETE", f"{QUOTAS}/lab")

    def drain_node(self, node: str) -> None:
        """Drain a node: nothing is placed on it any more, and all pods on it are evicted."""
        self.cordon(node)
        for pod in self._pods():
            if pod["spec"].get("nodeName") == node:
                self.evict(pod["metadata"]["name"])

    def taint(self, node: str, *, tainted: bool = True) -> None:
        """Give a node a taint that no pod tolerates: its pods are evicted. Or take all its taints away."""
        taints = [{"key": "lab/broken", "effect": "NoExecute"}] if tainted else []
        patch = {"spec": {"taints": taints}}
        self._request("PATCH", f"{NODES}/{node}", body=patch, content_type=MERGE)

    def drain(self, dag_id: str) -> None:
        """
        Delete all pods of a DAG that are there now and have not started, at once.

        Not as a collection: if that takes long, the API server gives up, and repeated, the request is about
        the pods that have taken their places.
        """
        query = {"labelSelector": f"dag_id={dag_id}", "fieldSelector": "status.phase=Pending"}
        pods = self._request("GET", PODS, query)["items"]
        self._wait_for(self._delete_all([pod["metadata"]["name"] for pod in pods]))

    async def _delete_all(self, names: Sequence[str]) -> None:
        await asyncio.gather(*map(self._delete_if_there, names))

    async def _delete_if_there(self, name: str, query: Mapping[str, int] | None = None) -> None:
        try:
            await self._client.request("DELETE", f"{PODS}/{name}", query=query)
        except ApiError as error:
            # Its node may have been quicker, or the same request, before it was repeated.
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def owners_since(self, version: str) -> Mapping[str, set[str]]:
        """
        Return, by the name of each pod seen since then, all schedulers that it has belonged to.

        :param version: from :meth:`version`
        """
        return self._wait_for(self._owners_since(version))

    async def _owners_since(self, version: str) -> Mapping[str, set[str]]:
        owners: dict[str, set[str]] = defaultdict(set)
        async for event in self._client.watch(PODS, {"resourceVersion": version, "timeoutSeconds": 1}):
            metadata = event["object"]["metadata"]
            owners[metadata["name"]].add(metadata["labels"][OWNER_LABEL])
        return owners

    def _version_of_evictions(self) -> str:
        resources = self._request("GET", "/api/v1")["resources"]
        (eviction,) = (resource for resource in resources if resource["name"] == "pods/eviction")
        return f"{eviction['group']}/{eviction['version']}"

    def _disrupt(self, name: str, reason: str, message: str) -> None:
        # The API server of the oldest version does not say so itself.
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        condition["lastTransitionTime"] = timestamp()
        body = {"status": {"conditions": [condition]}}
        self._request("PATCH", f"{PODS}/{name}/status", body=body, content_type=STRATEGIC_MERGE)

    def _patch_metadata(self, name: str, part: str, key: str, value: str) -> None:
        patch = {"metadata": {part: {key: value}}}
        self._request("PATCH", f"{PODS}/{name}", body=patch, content_type=STRATEGIC_MERGE)

    def _pods(self, name: str | None = None) -> list[JsonObject]:
        query = {} if name is None else {"fieldSelector": f"metadata.name={name}"}
        pods: list[JsonObject] = self._request("GET", PODS, query)["items"]
        return pods

    def _request(
        self, method: str, path: str, query: Mapping[str, str | int] | None = None, **options: Any
    ) -> JsonObject:
        return self._wait_for(self._client.request(method, path, query=query, **options))

    def _wait_for(self, coroutine: Awaitable[T]) -> T:
        return self._portal.call(lambda: coroutine)


def _is_in_use(pod: JsonObject) -> bool:
    return pod["status"]["phase"] != "Failed" or DONE_LABEL not in pod["metadata"]["labels"]
