# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The status of a pod as a kubelet writes it.

.. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from cluster_lab.client import JsonObject

WORKER_CONTAINER = "base"
"""The container that is run as a process; Airflow's executor gives it this name."""
EXIT_SIGTERM = 143
EXIT_SIGKILL = 137
LOST_CONTAINER = "The container could not be located when the pod was terminated"

_EPOCH = "1970-01-01T00:00:00Z"


class PodStatus:
    """A pod's status in the making; :meth:`patch` gives what is to be written."""

    def __init__(self, pod: JsonObject, host_ip: str) -> None:
        spec = pod["spec"]
        self._host_ip = host_ip
        self._start_time = timestamp()
        self._transitions: dict[str, tuple[str, str]] = {}
        self._init = [_Container(item) for item in spec.get("initContainers") or []]
        self._containers = [_Container(item) for item in spec["containers"]]
        self.is_rejected = False
        """Whether the kubelet has never taken the pod in: nothing is said about its containers."""
        self.phase = "Pending"
        self.reason: str | None = None
        self.message: str | None = None
        self.disruption: JsonObject | None = None
        self.node_is_silent = False
        """Whether the node controller has not heard of the node and says of its pods that none is ready."""
        if self._init:
            for container in (*self._init, *self._containers):
                container.state = {"waiting": {"reason": "PodInitializing"}}

    @property
    def is_terminal(self) -> bool:
        """Whether the phase is final."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def has_init_containers(self) -> bool:
        """Whether there is something to do before the worker container starts."""
        return bool(self._init)

    @property
    def worker_is_running(self) -> bool:
        """Whether the worker container is reported as running."""
        return "running" in self._worker.state

    @property
    def _worker(self) -> _Container:
        named = (item for item in self._containers if item.name == WORKER_CONTAINER)
        return next(named, self._containers[0])

    def wait(self, reason: str, message: str) -> None:
        """Let the worker container wait for a reason."""
        self._worker.state = {"waiting": {"reason": reason, "message": message}}

    def initialize(self) -> None:
        """All init containers have done their work."""
        for container in self._init:
            container.end(0, "Completed")

    def fail_init(self) -> None:
        """The first init container exits 1."""
        self._init[0].run()
        self._init[0].end(1, "Error")
        self.phase = "Failed"

    def run(self) -> None:
        """All containers run."""
        for container in self._containers:
            container.run()
        self.phase = "Running"

    def end_worker(
        self, exit_code: int, reason: str | None = None, message: str | None = None, *, alone: bool = False
    ) -> None:
        """
        End the worker container; the sidecars end with it, and so does the pod, unless it ends alone.

        :param reason: by default ``Completed`` or ``Error``, by the exit code
        """
        self._worker.end(exit_code, reason or ("Completed" if exit_code == 0 else "Error"), message)
        if alone:
            return
        for container in self._containers:
            if "running" in container.state:
                container.end(0, "Completed")
        self.end_rest()
        self.phase = "Succeeded" if exit_code == 0 else "Failed"

    def exceed_deadline(self) -> None:
        """End whatever runs, because the pod has been active for too long."""
        for container in self._containers:
            if "running" in container.state:
                container.end(EXIT_SIGTERM, "Error")
        self.fail_pod("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")

    def end_rest(self) -> None:
        """Give a final state to each container that has none, as kubelets do before a pod goes."""
        for container in (*self._init, *self._containers):
            if "terminated" not in container.state:
                container.end(EXIT_SIGKILL, "ContainerStatusUnknown", LOST_CONTAINER)
        if not self.is_terminal:
            self.phase = "Failed"

    def fail_pod(self, reason: str, message: str) -> None:
        """Fail the pod as a whole, its containers left in the state that they are in."""
        self.phase, self.reason, self.message = "Failed", reason, message

    def disrupt(self, reason: str, message: str) -> None:
        """
        Add the condition that says that somebody ended the pod.

        .. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
        """
        self.disruption = {"reason": reason, "message": message}

    def patch(self) -> JsonObject:
        """Return the body of a strategic merge patch of the pod's ``status``."""
        of_pod = _present(
            phase=self.phase, reason=self.reason, message=self.message, startTime=self._start_time
        )
        if self.is_rejected:
            return of_pod
        return of_pod | _present(
            hostIP=self._host_ip,
            podIP=None if self.phase == "Pending" else self._host_ip,
            podIPs=None if self.phase == "Pending" else [{"ip": self._host_ip}],
            conditions=list(self._conditions()),
            initContainerStatuses=[item.status(done_is_ready=True) for item in self._init] or None,
            # A kubelet sorts these by name: the worker container may stand anywhere.
            containerStatuses=[
                item.status(done_is_ready=False)
                for item in sorted(self._containers, key=lambda item: item.name)
            ],
        )

    def _conditions(self) -> Iterable[JsonObject]:
        initialized = all(item.is_ready(done_is_ready=True) for item in self._init)
        unready = [item.name for item in self._containers if "running" not in item.state]
        if self.is_terminal:
            why: JsonObject = {"reason": "PodCompleted" if self.phase == "Succeeded" else "PodFailed"}
        else:
            message = f"containers with unready status: {unready}"
            why = {"reason": "ContainersNotReady", "message": message}
        yield self._condition("PodScheduled", True)
        yield self._condition("Initialized", initialized, {"reason": "ContainersNotInitialized"})
        yield self._condition("ContainersReady", not unready, why)
        if self.node_is_silent:
            yield self._condition("Ready", False)
        else:
            yield self._condition("Ready", not unready, why)
        if self.disruption:
            yield self._condition("DisruptionTarget", True) | self.disruption

    def _condition(self, type_: str, holds: bool, why_not: JsonObject | None = None) -> JsonObject:
        status = str(holds)
        known = self._transitions.get(type_)
        if known is None or known[0] != status:
            known = self._transitions[type_] = (status, timestamp())
        condition = {"type": type_, "status": status, "lastTransitionTime": known[1]}
        # A strategic merge would keep the reason of an earlier status: None removes it.
        return condition | ({"reason": None, "message": None} if holds else why_not or {})


class _Container:
    """One container's part of the status."""

    def __init__(self, spec: JsonObject) -> None:
        self.name: str = spec["name"]
        self._image: str = spec.get("image", "")
        self._id: str | None = None
        self.state: JsonObject = {"waiting": {"reason": "ContainerCreating"}}

    def run(self) -> None:
        self._id = f"lab://{uuid.uuid4().hex}"
        self.state = {"running": {"startedAt": timestamp()}}

    def end(self, exit_code: int, reason: str, message: str | None = None) -> None:
        # A container that could not be started reports the Unix epoch; one that was lost reports no times.
        lost = reason == "ContainerStatusUnknown"
        self.state = {
            "terminated": _present(
                exitCode=exit_code,
                reason=reason,
                message=message,
                startedAt=self.state.get("running", {}).get("startedAt", None if lost else _EPOCH),
                finishedAt=None if lost else timestamp(),
                containerID=self._id,
            )
        }

    def is_ready(self, *, done_is_ready: bool) -> bool:
        done = self.state.get("terminated", {}).get("exitCode") == 0
        return "running" in self.state or (done_is_ready and done)

    def status(self, *, done_is_ready: bool) -> JsonObject:
        return _present(
            name=self.name,
            image=self._image,
            imageID=self._image if self._id else "",
            containerID=self._id,
            restartCount=0,
            ready=self.is_ready(done_is_ready=done_is_ready),
            started="running" in self.state,
            state=self.state,
            lastState={},
        )


def timestamp() -> str:
    """Return the time as the API writes it: RFC 3339, UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _present(**fields: Any) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}
