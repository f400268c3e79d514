# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The pods of the chaos world: what the API server has of them, and what can befall them.

Beyond the unit tests' cluster it has a time of its own, remembers pods that are gone, and tells its watchers
of each change; what is asserted about a pod's history is kept with it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef

from ..support.cluster import Pod
from ..support.manifests import AIRFLOW_UNREACHABLE, evicted

GRACE = timedelta(seconds=30)
DONE = "airflow_executor_done"
TERMINATED = {
    "drain": (None, {"exitCode": 143, "reason": "Error"}),
    "evicted": ("Evicted", {"exitCode": 137, "reason": "Error"}),
    "start-error": (None, {"exitCode": 128, "reason": "StartError"}),
    "unknown": (None, {"exitCode": 137, "reason": "ContainerStatusUnknown"}),
}
DRAINED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
OWN_EXIT = {"exitCode": 1, "reason": "Error"}
UNREACHABLE = OWN_EXIT | {"message": AIRFLOW_UNREACHABLE}
"""The end of a worker that cannot reach Airflow's API server."""

Life = tuple[str, int]
"""A task instance's UUID, and how many of its triggers have fired: launches are counted anew after each."""


class WorldPod(Pod):
    """A pod as the API server has it, and what the world knows of its process."""

    def __init__(self, body: dict[str, Any], uid: str, now: datetime, triggers: Counter[str]) -> None:
        super().__init__(body, uid)
        self.created(now.isoformat())
        self.token_made_at = now
        """When the token was made that its worker shows, at the earliest."""
        self.was_held = False
        """Whether the API server has been away while it existed."""
        self.created_late = False
        """Whether time has passed since its token was made and it was asked for, and its creation."""
        self.ended_unseen = False
        """Whether the API server was away before any scheduler could learn of its end, which was not its own
        doing."""
        self.ti_id: str = self.annotations["airflow-resilience/task-instance-id"]
        self.life: Life = (self.ti_id, triggers[self.ti_id])
        self.exists = True
        self.lost = False
        """Whether the infrastructure has taken it, for good or for a while."""
        self.has_reported = False
        """Whether its worker has asked the execution API whether it may run its task."""
        self.exited_by_itself = False
        self.ended_at = datetime.max.replace(tzinfo=UTC)
        self.was_unreached = False
        """Whether its worker could not reach Airflow's API server, and has ended for that."""
        self.is_cut_off = False
        """Whether Kubernetes cannot reach its node."""
        self.goes_on = False
        """Whether its worker runs on, whatever the API server has of it."""
        self.asked_at: datetime | None = None
        """When its deletion was asked for first."""
        self.deleted_as: str | None = None
        """The scheduler's label with which that deletion finds it; the pod stays when it gets another one."""
        self.accepted_at: datetime | None = None
        """When the API server accepted it."""
        self.was_taken_in_good_order = False
        """Whether its worker was told to go before its container was ended from outside."""
        self.is_forgotten = False
        """Whether its launch was revoked by one scheduler, and its task instance is queued by another."""
        self.could_start = True
        """Whether whoever asked for its deletion first knew of no process of it."""

    @property
    def phase(self) -> str:
        """Its phase; Running if its worker runs, also if a sidecar keeps the API server's at Pending."""
        status = self.manifest["status"]
        runs = any("running" in item["state"] for item in status.get("containerStatuses", ()))
        return "Running" if runs else str(status["phase"])

    @property
    def has_started(self) -> bool:
        """Whether its worker has, as the API server has it."""
        worker = self.facts().worker
        return self.phase != "Pending" or (worker is not None and worker.started)

    @property
    def is_alive(self) -> bool:
        """Whether a process of it runs or may still start."""
        return self.exists and self.phase in ("Pending", "Running")

    @property
    def is_healthy(self) -> bool:
        return self.is_alive and not self.lost and self.asked_at is None

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.manifest["metadata"]

    @property
    def is_tidy(self) -> bool:
        return not self.exists or self.labels.get(DONE) == "True"

    @property
    def resource_version(self) -> str:
        return str(self.manifest["metadata"]["resourceVersion"])

    def enter(self, phase: str, *, reason: str | None = None, **state: Any) -> None:
        self.manifest["status"] |= {
            "phase": phase,
            "reason": reason,
            "initContainerStatuses": [],
            "containerStatuses": [{"name": "base", "state": state}],
        }

    def add_waiting_sidecar(self) -> None:
        """Have a native sidecar wait for its image: for its pod to be Running, all containers have to run."""
        self.manifest["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
        self.manifest["status"] |= {
            "phase": "Pending",
            "initContainerStatuses": [{"name": "proxy", "state": {"waiting": {"reason": "ErrImagePull"}}}],
        }

    def end(
        self, phase: str, terminated: dict[str, Any], now: datetime, *, reason: str | None = None
    ) -> None:
        self.ended_at = now
        self.enter(phase, reason=reason, terminated=terminated | {"finishedAt": now.isoformat()})


class Cluster:
    """All pods that there ever were; each change is told to those who watch."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.pods: list[WorldPod] = []
        self.triggers: Counter[str] = Counter()
        """How many triggers of each task instance have fired."""
        self.watchers: list[Callable[[WorldPod], None]] = []
        self._uids = itertools.count(1)
        self._versions = itertools.count(1)

    # ------------------------------------------------------------------ looking

    def pods_of(self, life: Life) -> list[WorldPod]:
        """Return the pods of a life of a task instance, the newest last."""
        return [pod for pod in self.pods if pod.life == life]

    def pod_of(self, ref: PodRef) -> WorldPod | None:
        return next((pod for pod in self.pods if pod.exists and pod.uid == ref.uid), None)

    def pod_launched_as(self, launch_id: str) -> WorldPod | None:
        return next((pod for pod in self.pods if pod.exists and pod.launch_id == launch_id), None)

    def pod_named(self, name: str | None) -> WorldPod | None:
        """Return the newest pod of a name: a create call that is repeated may find the name free again."""
        return next((pod for pod in reversed(self.pods) if name and pod.name == name), None)

    # ------------------------------------------------------------------ what the API server is asked for

    def create(self, body: dict[str, Any]) -> WorldPod:
        pod = WorldPod(body, f"uid-{next(self._uids)}", self.now, self.triggers)
        self.pods.append(pod)
        self.changed(pod)
        return pod

    def relabel(self, pod: WorldPod, labels: dict[str, str]) -> None:
        pod.labels.update(labels)
        if pod.deleted_as not in (None, pod.labels["airflow-worker"]) and not pod.is_deleting:
            pod.asked_at = pod.deleted_as = None
        self.changed(pod)

    def delete(self, pod: WorldPod) -> None:
        """Ask for a deletion: what a kubelet has seen and has not ended yet is given time to end."""
        pod.asked_at = pod.asked_at or self.now
        pod.accepted_at = pod.accepted_at or self.now
        if not (pod.is_alive and "containerStatuses" in pod.manifest["status"]):
            self.remove(pod)
        elif not pod.is_deleting:
            pod.manifest["metadata"]["deletionTimestamp"] = (self.now + GRACE).isoformat()
            self._lose(pod)
            self.changed(pod)

    # ------------------------------------------------------------------ what befalls pods

    def run(self, pod: WorldPod, *, sidecar_waits: bool = False) -> None:
        pod.enter("Running", running={"startedAt": self.now.isoformat()})
        if sidecar_waits:
            pod.add_waiting_sidecar()
        self.changed(pod)

    def succeed(self, pod: WorldPod) -> None:
        pod.end("Succeeded", {"exitCode": 0, "reason": "Completed"}, self.now)
        self.changed(pod)

    def stall(self, pod: WorldPod) -> None:
        self._lose(pod)
        pod.enter("Pending", waiting={"reason": "ErrImagePull", "message": "registry is down"})
        self.changed(pod)

    def recover(self, pod: WorldPod) -> None:
        """Let the image of a pod that was stalled be pulled after all."""
        pod.lost = False
        pod.enter("Pending", waiting={"reason": "ContainerCreating"})
        self.changed(pod)

    def evict_before_its_start(self, pod: WorldPod) -> None:
        """Let a kubelet evict a pod of which it has started nothing: there is no status of a container."""
        self._lose(pod)
        pod.manifest["status"] = evicted()["status"]
        self.changed(pod)

    def exit_by_itself(self, pod: WorldPod) -> None:
        """End a worker before it has reported, by its own fault."""
        pod.exited_by_itself = True
        pod.end("Failed", OWN_EXIT, self.now)
        self.changed(pod)

    def give_airflow_up(self, pod: WorldPod) -> None:
        """End a worker that cannot reach Airflow's API server, before it has reported."""
        pod.was_unreached = True
        pod.end("Failed", UNREACHABLE, self.now)
        self.changed(pod)

    def kill(self, pod: WorldPod, how: str) -> None:
        """End a pod from outside."""
        self._lose(pod)
        if how == "drain":
            pod.manifest["status"]["conditions"] = [DRAINED]
        pod.was_taken_in_good_order = how in ("drain", "evicted")
        reason, terminated = TERMINATED[how]
        pod.end("Failed", terminated, self.now, reason=reason)
        self.changed(pod)

    def finish_deletion(self, pod: WorldPod) -> None:
        """Let the kubelet carry out a deletion that was asked for."""
        if pod.phase == "Running":
            pod.end("Failed", {"exitCode": 143, "reason": "Error"}, self.now)
            self.changed(pod)
        self.remove(pod)

    def remove(self, pod: WorldPod) -> None:
        """Remove a pod's object: a force deletion, PodGC, a clean-up job."""
        self._lose(pod)
        pod.exists = False
        self.changed(pod)

    def changed(self, pod: WorldPod) -> None:
        pod.manifest["metadata"]["resourceVersion"] = str(next(self._versions))
        for watcher in self.watchers:
            watcher(pod)

    def _lose(self, pod: WorldPod) -> None:
        pod.lost = pod.lost or pod.is_alive
