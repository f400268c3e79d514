# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the tests see of the cluster, and do to it, with the official client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Api
from kubernetes.config import new_client_from_config
from kubernetes.watch import Watch

NAMESPACE = "default"
OWNER_LABEL = "airflow-worker"
"""Its value is the job id of the scheduler to which a worker pod belongs."""

DONE_LABEL = "airflow_executor_done"
"""On a pod that is kept and that no executor looks at any more."""


class Cluster:
    """The worker pods of one deployment."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = new_client_from_config(str(kubeconfig))
        self._api = CoreV1Api(self._client)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def version(self) -> str:
        """Return the version of the cluster's state now, for :meth:`owners_since`."""
        version: str = self._api.list_namespaced_pod(NAMESPACE, limit=1).metadata.resource_version
        return version

    def pods(self, run_id: str) -> list[Any]:
        """Return the pods of a run that exist now."""
        return [
            pod
            for pod in self._api.list_namespaced_pod(NAMESPACE).items
            if (pod.metadata.annotations or {}).get("run_id") == run_id
        ]

    def names(self) -> list[str]:
        """Return the names of all pods that exist now."""
        return [pod.metadata.name for pod in self._api.list_namespaced_pod(NAMESPACE).items]

    def unfinished_business(self, run_id: str) -> list[str]:
        """Return the pods of a run that are in use; failed ones are kept, with a label."""
        return [
            pod.metadata.name
            for pod in self.pods(run_id)
            if pod.status.phase != "Failed" or DONE_LABEL not in pod.metadata.labels
        ]

    def is_done(self, name: str) -> bool:
        """Tell whether a pod is gone, or no executor looks at it any more."""
        found = self._api.list_namespaced_pod(NAMESPACE, field_selector=f"metadata.name={name}").items
        return all(DONE_LABEL in pod.metadata.labels for pod in found)

    def owner(self, name: str) -> int | None:
        """Return the scheduler job that a pod belongs to, None if there is no such pod."""
        found = self._api.list_namespaced_pod(NAMESPACE, field_selector=f"metadata.name={name}").items
        return int(found[0].metadata.labels[OWNER_LABEL]) if found else None

    def delete(self, name: str) -> None:
        """Delete a pod at once, as somebody would with ``kubectl delete --force``."""
        self._api.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        return [node.metadata.name for node in self._api.list_node().items]

    def cordon(self, *nodes: str, unschedulable: bool = True) -> None:
        """Let no pod be placed on these nodes any more, or let it again."""
        for node in nodes:
            self._api.patch_node(node, {"spec": {"unschedulable": unschedulable}})

    def drain(self, dag_id: str) -> datetime:
        """
        Delete all pods of a DAG that have not started, with one request.

        :return: when
        """
        at = datetime.now(UTC)
        self._api.delete_collection_namespaced_pod(
            NAMESPACE, label_selector=f"dag_id={dag_id}", field_selector="status.phase=Pending"
        )
        return at

    def owners_since(self, version: str) -> Mapping[str, set[str]]:
        """
        Return, by the name of each pod seen since then, all schedulers that it has belonged to.

        :param version: from :meth:`version`
        """
        owners: dict[str, set[str]] = defaultdict(set)
        events = Watch().stream(
            self._api.list_namespaced_pod, NAMESPACE, resource_version=version, timeout_seconds=1
        )
        for event in events:
            metadata = event["object"].metadata
            owners[metadata.name].add(metadata.labels[OWNER_LABEL])
        return owners
