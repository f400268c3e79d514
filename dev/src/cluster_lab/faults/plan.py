# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The fault plan: which pod dies in which way, as frozen data loaded from YAML.

.. code-block:: yaml

    rules:
      - task_id: extract_*        # fnmatch pattern, default *
        fault: evicted
      - dag_id: nightly
        task_id: wait_for_file
        phase: resume             # the pod that continues a deferred task
        fault: start-error
      - task_id: load
        launch: 2                 # the second pod of this try
        fault: failed-then-cleanup
        delay: 10

The first rule that matches a launch decides; what no rule matches runs normally. The faults of workers that
run, ``...-running``, are in no plan. Such a worker meets the one that its pod's annotation
``cluster-lab/fault`` asks for: whoever knows how far its task has come chooses the moment.

The first pod of a task instance's try is launch 1, its replacement 2, and so on. The lab counts the pods that
it sees itself, because the official executor writes no launch number on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import ConfigDict, NonNegativeFloat, PositiveInt, TypeAdapter
from pydantic.dataclasses import dataclass


class LaunchPhase(StrEnum):
    """Which part of a task try a pod runs."""

    INITIAL = "initial"
    RESUME = "resume"
    """
    Any pod after one of the same try that ended well: such a try goes on only because its task was deferred
    or rescheduled. The count of launches begins at 1 again after each such pod.
    """


class TaskTry(NamedTuple):
    """
    One try of one task instance, read from the annotations that the executor puts on its pods.

    A pod that is not a worker of Airflow has empty texts and try number 0.
    """

    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    """-1 for a task that is not mapped."""
    try_number: int


@dataclass(frozen=True)
class Launch:
    """One pod, as the n-th attempt to run (a phase of) a task try."""

    task_try: TaskTry
    phase: LaunchPhase
    number: int
    """Counts from 1 in each phase."""
    node: str = ""


class LaunchCounter:
    """Numbers pods in the order in which the lab's nodes see them."""

    def __init__(self) -> None:
        self._counts: Counter[TaskTry] = Counter()
        self._ended_well: set[TaskTry] = set()

    def register(self, pod: Mapping[str, Any]) -> Launch:
        """
        Count a pod; to be called once for each UID.

        :param pod: a pod manifest
        """
        task_try = _read_task_try(pod["metadata"].get("annotations") or {})
        self._counts[task_try] += 1
        phase = LaunchPhase.RESUME if task_try in self._ended_well else LaunchPhase.INITIAL
        return Launch(task_try, phase, self._counts[task_try], pod["spec"].get("nodeName", ""))

    def ended_well(self, launch: Launch) -> None:
        """Note that the worker of this launch exited with code 0: whatever follows resumes the task."""
        self._ended_well.add(launch.task_try)
        del self._counts[launch.task_try]


def _read_task_try(annotations: Mapping[str, str]) -> TaskTry:
    return TaskTry(
        dag_id=annotations.get("dag_id", ""),
        task_id=annotations.get("task_id", ""),
        run_id=annotations.get("run_id", ""),
        map_index=int(annotations.get("map_index", -1)),
        try_number=int(annotations.get("try_number", 0)),
    )


class Fault(StrEnum):
    """What can happen to a pod. The sequence of statuses that each one produces is in ``scenarios``."""

    IMAGE_PULL = "image-pull"
    """ErrImagePull and ImagePullBackOff take turns for ever, ever more slowly."""
    REGISTRY_AWAY = "registry-away"
    """As ``image-pull``, since the registry does not answer."""
    IMAGE_PULL_RECOVERS = "image-pull-recovers"
    """ErrImagePull is reported; after ``delay`` the pull succeeds after all and the worker starts."""
    START_ERROR = "start-error"
    """The container could not be started: StartError, exit code 128."""
    CONTAINER_STATUS_UNKNOWN = "container-status-unknown"
    """The kubelet lost the container: ContainerStatusUnknown, exit code 137."""
    EVICTED = "evicted"
    """Evicted by the kubelet under resource pressure, with DisruptionTarget TerminationByKubelet."""
    DRAIN = "drain"
    """Evicted through the API while the worker starts: Error, exit code 143, DisruptionTarget, deleted."""
    INIT_FAILURE = "init-failure"
    """The first init container exits 1; the worker container is never started."""
    DELETED_PENDING = "deleted-pending"
    """Somebody deletes the pod after it was bound and before its container starts."""
    FORCE_DELETED_STARTING = "force-deleted-starting"
    """Force-deleted right after the container was reported Running."""
    UNKNOWN_THEN_PODGC = "unknown-then-podgc"
    """ContainerStatusUnknown; after ``delay`` the node's object is removed and PodGC deletes the pod."""
    FAILED_THEN_CLEANUP = "failed-then-cleanup"
    """ContainerStatusUnknown; after ``delay`` a clean-up job deletes the failed pod."""
    NODE_SHUTDOWN = "node-shutdown"
    """Rejected by a node that shuts down: reason NodeShutdown."""
    NODE_TERMINATED = "node-terminated"
    """Terminated by a node that shuts down: reason Terminated, DisruptionTarget TerminationByKubelet."""
    NODE_LOST = "node-lost"
    """The node stopped responding: reason NodeLost."""
    UNEXPECTED_ADMISSION = "unexpected-admission"
    """Rejected by the node at admission: reason UnexpectedAdmissionError."""
    PROVIDER_FAILED = "provider-failed"
    """A virtual node's provider could not create the pod: reason ProviderFailed, the phase stays Pending."""
    WORKER_EXIT = "worker-exit"
    """The worker exits 1 on its own before it reports: Error, exit code 1, nobody asked for it."""
    WORKER_TERMINATED = "worker-terminated"
    """The worker is told to go before it reports, and nobody says by whom: Error, exit code 143."""
    SIDECAR_RUNS_ON = "sidecar-runs-on"
    """The worker container could not be started, and those beside it run on: StartError, phase Running."""
    OOM_AT_START = "oom-at-start"
    """The worker is out of memory while it starts: OOMKilled, exit code 137."""
    VANISH = "vanish"
    """Force-deleted while Pending, without a trace."""
    PARTITION = "partition"
    """The node loses the API server: the pod is force-deleted, its worker starts all the same later."""
    KILL_RUNNING = "kill-running"
    """The worker is killed with SIGKILL: Error, exit code 137."""
    OOM_RUNNING = "oom-running"
    """The worker exceeds its own limit of memory: OOMKilled, exit code 137."""
    EVICTED_RUNNING = "evicted-running"
    """The worker is evicted as in ``evicted``, without a grace period."""
    NODE_TERMINATED_RUNNING = "node-terminated-running"
    """The worker's node shuts down: SIGTERM, its grace period, then as in ``node-terminated``."""
    NODE_LOST_RUNNING = "node-lost-running"
    """The worker's machine is gone: the node says nothing more about the pod, its object is removed, and
    PodGC deletes the pod."""
    NODE_SILENT_RUNNING = "node-silent-running"
    """The worker stands still with its node, which reports nothing more and confirms no deletion. The node
    controller says that the pod is not ready, and leaves it as it is otherwise."""
    PARTITION_RUNNING = "partition-running"
    """The worker's node loses the API server: the pod is force-deleted, and the worker works on and reaches
    everything else."""


_DEFAULT_DELAYS = {
    Fault.IMAGE_PULL_RECOVERS: 10.0,
    Fault.UNKNOWN_THEN_PODGC: 10.0,
    Fault.FAILED_THEN_CLEANUP: 25.0,
    Fault.PARTITION: 5.0,
}

FAULT_ANNOTATION = "cluster-lab/fault"
"""On a pod whose worker runs: the fault that is to happen to it now."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class FaultRule:
    """One rule of the plan: a fault, and the launches that it happens to."""

    fault: Fault
    dag_id: str = "*"
    """Pattern (fnmatch, case matters) for the pod's annotation ``dag_id``."""
    task_id: str = "*"
    """Pattern for the pod's annotation ``task_id``."""
    node: str = "*"
    """Pattern for the name of the pod's node."""
    map_index: int | None = None
    """None: any; -1: tasks that are not mapped."""
    try_number: int | None = None
    """None: any."""
    phase: LaunchPhase = LaunchPhase.INITIAL
    """``resume``: the pods after one of the same try that ended well (deferred, rescheduled)."""
    launch: PositiveInt | None = 1
    """Which pod of the try in this phase; the first is 1. None: each one."""
    delay: NonNegativeFloat | None = None
    """
    Seconds: the time between the two halves of a fault that has two (see :class:`Fault`), otherwise the time
    that the pod is left Pending before the fault. The annotation ``cluster-lab/go-on`` ends it before, except
    on a node that is cut off. None: the fault's own default.
    """

    @property
    def effective_delay(self) -> float:
        """Seconds."""
        return _DEFAULT_DELAYS.get(self.fault, 0.0) if self.delay is None else self.delay

    def matches(self, launch: Launch) -> bool:
        """Whether this rule is about that launch."""
        task = launch.task_try
        return (
            fnmatchcase(task.dag_id, self.dag_id)
            and fnmatchcase(task.task_id, self.task_id)
            and fnmatchcase(launch.node, self.node)
            and self.map_index in (None, task.map_index)
            and self.try_number in (None, task.try_number)
            and self.phase is launch.phase
            and self.launch in (None, launch.number)
        )


def load_plan(path: Path) -> tuple[FaultRule, ...]:
    """
    Read the rules of a plan from a YAML file, in the order in which they are tried.

    :raises pydantic.ValidationError: if the file is not a plan; it names each bad key and value
    """
    plan = TypeAdapter(dict[Literal["rules"], tuple[FaultRule, ...]])
    return plan.validate_python(yaml.safe_load(path.read_text(encoding="utf-8"))).get("rules", ())
