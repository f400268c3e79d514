# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The facts of a pod manifest, as a frozen and typed value.

Reading is total: a field that is absent, null or of the wrong type reads as "not known", and raises nothing.
Only a manifest without name, namespace or UID is refused.

.. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from signal import SIGHUP, SIGINT, SIGQUIT, SIGTERM
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")

WORKER_CONTAINER = "base"
"""Name of the container that runs the task, unless :data:`WORKER_ANNOTATION` says another one. The container
may stand anywhere in the pod's list of containers."""

WORKER_ANNOTATION = "airflow-resilience/worker-container"
"""Name of the container that runs the task, where a pod override has renamed it."""

LAUNCH_ID_ANNOTATION = "airflow-resilience/launch-id"
"""Unique to one launch. The annotation distinguishes our own pod from another one of the same name."""

LAUNCH_NUMBER_ANNOTATION = "airflow-resilience/launch-number"
"""1 for the first launch of a try, one more for each relaunch."""

TASK_INSTANCE_ID_ANNOTATION = "airflow-resilience/task-instance-id"
"""The task instance's UUID."""

EXECUTOR_LABEL = "airflow-resilience/executor"
"""The pod's executor among those of a scheduler."""

SCHEDULER_LABEL = "airflow-worker"
"""Names the job of the scheduler that watches a worker pod."""

DONE_LABEL = "airflow_executor_done"
"""``True`` on a pod that is kept and that no executor sees again."""

LABELS = (SCHEDULER_LABEL, DONE_LABEL, EXECUTOR_LABEL)
"""The labels by which a pod belongs to a scheduler and its executor. Others are not kept."""

ANNOTATIONS = (
    *("dag_id", "task_id", "run_id", "try_number", "map_index"),
    *(LAUNCH_ID_ANNOTATION, LAUNCH_NUMBER_ANNOTATION, TASK_INSTANCE_ID_ANNOTATION, WORKER_ANNOTATION),
)
"""The annotations that identify a worker pod. Others are not kept: there are thousands of pods."""

_UNIQUE = frozenset({LAUNCH_ID_ANNOTATION, TASK_INSTANCE_ID_ANNOTATION})
# Not for the cache of texts that many pods share: each of these would displace one of them.

DEFAULT_GRACE_SECONDS = 30
"""Default of Kubernetes where ``spec.terminationGracePeriodSeconds`` is not set."""

STOP_SIGNALS = frozenset({SIGHUP, SIGINT, SIGQUIT, SIGTERM})
"""Signals that ask a process for its end: SIGTERM, unless its image or ``lifecycle.stopSignal`` says another.

.. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-stop-signals
"""

_SIGNAL_BASE, _LAST_SIGNAL = 128, 64
# Above 128 + 64 there is no signal: 255 is a program's -1.

_HUGE = 10
# Digits of a number that no launch has. Python refuses to read one of thousands.

_EPOCH_YEAR = 1970

_UNFIT_PROCESSOR = "fatal glibc error: cpu does not support"
# The processor is of the right kind, but older than the image demands, such as x86-64-v2.

_BEFORE_START = frozenset({"ContainerCreating", "PodInitializing"})
_LOST = "ContainerStatusUnknown"

WORKLOAD_OPTION = "--json-string"
"""Argument of the worker. The workload follows it."""


class _WorkloadTaskInstance(msgspec.Struct):
    id: str


class _Workload(msgspec.Struct):
    """The part of a worker's workload that is read (``airflow.executors.workloads.ExecuteTask``)."""

    ti: _WorkloadTaskInstance


class MalformedPodError(ValueError):
    """A manifest without name, namespace or UID."""


class ContainerType(StrEnum):
    """The role of a container in a worker pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    """A container beside the worker, or a native sidecar (an init container that restarts ``Always``)."""
    WORKER = "worker"


class ContainerState(StrEnum):
    """The state of a container, in the words of the Kubernetes API."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"


class Texts(Mapping[str, str]):
    """
    A few texts by name, in two thirds of the memory of a dictionary.

    :param items: names and texts
    """

    __slots__ = ("_names", "_texts")

    def __init__(self, items: tuple[tuple[str, str], ...]) -> None:
        self._names = _same(tuple(name for name, _ in items))
        self._texts = tuple(text for _, text in items)

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(name)
        return self._texts[self._names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, slots=True)
class PodRef:
    """Addresses one pod, and no other pod that had or will have its name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """The status of a container."""

    name: str
    type: ContainerType
    state: ContainerState
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    before_worker: bool = False
    """Whether the worker container starts after this one (init containers and native sidecars)."""
    started: bool = False
    """Whether a process of it has ever run."""
    finished_at: datetime | None = None
    """When it ended, by the clock of its node; None if not yet, or if unknown."""
    unlimited_memory: bool = False
    """Whether neither it nor its pod has a limit of memory, as far as is known."""
    image: str | None = None
    """Its image, as the pod's manifest names it."""

    @property
    def failed(self) -> bool:
        """Whether the container ended with another exit code than 0."""
        return self.state is ContainerState.TERMINATED and self.exit_code != 0

    @property
    def has_lost_exit_code(self) -> bool:
        """Whether the runtime has missed how the container ended: no process exits with less than 0."""
        return (self.exit_code or 0) < 0

    @property
    def is_not_executable(self) -> bool:
        """
        Whether the kernel, or the C library, refused its program, so that nothing of it has run.

        The words of the runtime, or of that library, are all that is in its log then.
        """
        message = (self.message or "").strip()
        if message.startswith('{"msg":"'):  # of crun with CRI-O
            message = message.partition('","')[0]
        said, *more = set(message.strip('"').lower().split("\n"))
        is_refused = said.endswith("exec format error") or said.startswith(_UNFIT_PROCESSOR)
        return self.failed and is_refused and not more

    @property
    def killed_by(self) -> int | None:
        """
        Number of the signal that ended the container; None if none did.

        Most runtimes show the signal by the exit code only, as shells do: 128 plus the number.
        """
        if self.signal:
            return self.signal
        code = self.exit_code or 0
        return code - _SIGNAL_BASE if _SIGNAL_BASE < code <= _SIGNAL_BASE + _LAST_SIGNAL else None


@dataclass(frozen=True, slots=True)
class ConditionFacts:
    """An entry of ``status.conditions``."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod as it was seen at one resource version."""

    ref: PodRef
    labels: Mapping[str, str]
    """Those of :data:`LABELS` that it has."""
    annotations: Mapping[str, str]
    """Those of :data:`ANNOTATIONS` that it has."""
    created: datetime | None = None
    scheduled: datetime | None = None
    """When it was given a node."""
    started: datetime | None = None
    """When its worker container began to run, by the clock of its node; None if that is not known."""
    deletion_timestamp: datetime | None = None
    """When the grace period of a deletion ends, by the API server's clock; None without a deletion."""
    deletion_grace_seconds: int = DEFAULT_GRACE_SECONDS
    """Seconds: length of that grace period, or of the one that a deletion would have."""
    node: str | None = None
    addresses: str = ""
    """Its IP addresses, separated by commas: one text takes half the memory of a tuple with one text."""
    restart_policy: str | None = None
    """Of its worker: ``Never``, ``OnFailure`` (one that has succeeded is not restarted) or ``Always``."""
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: tuple[ConditionFacts, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()
    """Init containers first, then the others, each in the order of the status lists."""
    resource_version: str | None = None
    """The version of this reading; None if the worker has started, or cannot start any more. Only a pod that
    may still start is deleted on the condition that it has not changed."""

    @property
    def launch_number(self) -> int:
        """The number of the launch that the pod is; 1 for a pod that another executor has created."""
        text = self.annotations.get(LAUNCH_NUMBER_ANNOTATION, "")
        return int(text) if text.isdecimal() and len(text) < _HUGE else 1

    @property
    def worker_name(self) -> str:
        """Name of the container that runs the task."""
        return self.annotations.get(WORKER_ANNOTATION) or WORKER_CONTAINER

    @property
    def is_terminal(self) -> bool:
        """Whether no container of the pod can run any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def worker(self) -> ContainerFacts | None:
        """The container that runs the task, if its status is known."""
        return next((item for item in self.containers if item.type is ContainerType.WORKER), None)

    @property
    def has_lost_worker(self) -> bool:
        """
        Whether the worker container has failed for good. Another container may run on.

        .. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
        """
        return self.restart_policy == "Never" and self.worker is not None and self.worker.failed

    @property
    def has_done_worker(self) -> bool:
        """Whether the worker container has succeeded for good while the pod runs on."""
        worker = self.worker
        has_ended = worker is not None and worker.state is ContainerState.TERMINATED and not worker.failed
        is_final = self.restart_policy in ("Never", "OnFailure")
        return has_ended and is_final and not self.is_terminal

    @property
    def has_succeeded(self) -> bool:
        """Whether the worker container has succeeded for good. Another container may run on."""
        return self.phase == "Succeeded" or self.has_done_worker

    @property
    def lingers(self) -> bool:
        """Whether the worker container has ended for good, and another container runs on."""
        return not self.is_terminal and (self.has_done_worker or self.has_lost_worker)

    @property
    def has_ended(self) -> bool:
        """Whether the worker container has ended for good. Another container may run on."""
        return self.is_terminal or self.lingers

    @property
    def has_started(self) -> bool:
        """Whether the worker container has ever run, as far as is known."""
        worker = self.worker
        return self.phase == "Running" if worker is None else worker.started

    @property
    def may_start(self) -> bool:
        """Whether the worker container has not run yet, and can, as far as is known."""
        return _may_start(self.phase, self.containers)

    @property
    def is_past_starting(self) -> bool:
        """Whether it has started or ended, and not because it was deleted."""
        return (self.has_started or self.is_terminal) and not self.deletion_timestamp

    @property
    def unscheduled(self) -> ConditionFacts | None:
        """The scheduler's condition that it has no node for the pod; None if there is none."""
        return self.condition("PodScheduled", status="False") if self.phase == "Pending" else None

    @property
    def is_gated(self) -> bool:
        """
        Whether a scheduling gate holds the pod back, as that of a job queue does.

        .. seealso:: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
        """
        condition = self.unscheduled
        return condition is not None and condition.reason == "SchedulingGated"

    @property
    def is_on_silent_node(self) -> bool:
        """
        Whether the pod runs on a node whose kubelet does not report, as far as the pod shows.

        The control plane then takes the readiness from the node's pods. Container statuses of its pods stay
        unchanged.

        .. seealso:: https://kubernetes.io/docs/concepts/architecture/nodes/#node-status
        """
        # In this order: it is asked of each reading of each pod, and most are ready.
        return (
            self.phase == "Running"
            and self.condition("Ready", status="False") is not None
            and self.condition("ContainersReady", status="False") is None
        )

    def condition(self, type_: str, *, status: str = "True") -> ConditionFacts | None:
        """Return the condition of that type if its status is the given one."""
        for condition in self.conditions:
            if condition.type == type_ and condition.status == status:
                return condition
        return None


@lru_cache(maxsize=4096)
def shared(text: str) -> str:
    """Return the one copy of a text that very many pods share."""
    # Not interned: Python 3.12 would never free the text.
    return text


_NOTHING: Mapping[str, PodFacts] = MappingProxyType({})


def read_pod(manifest: Mapping[str, Any], known: Mapping[str, PodFacts] = _NOTHING) -> PodFacts:
    """
    Read a pod manifest as decoded from the API's JSON.

    :param manifest: a ``v1.Pod`` object; anything in it may be missing, null or of an unexpected type
    :param known: earlier readings, by UID. A pod's identity never changes, and all of its readings share one.
    :raises MalformedPodError: if it has no name, namespace or UID
    """
    metadata = _mapping(_mapping(manifest).get("metadata"))
    spec = _mapping(_mapping(manifest).get("spec"))
    status = _mapping(_mapping(manifest).get("status"))
    name, namespace, uid = (_text(metadata.get(key)) for key in ("name", "namespace", "uid"))
    if not (name and namespace and uid):
        raise MalformedPodError(f"pod without identity: name={name!r} namespace={namespace!r} uid={uid!r}")
    ref = PodRef(namespace=shared(namespace), name=name, uid=uid)
    before = known.get(uid)
    grace = _integer(spec.get("terminationGracePeriodSeconds"))
    grace = DEFAULT_GRACE_SECONDS if grace is None else grace
    deletion_grace = _integer(metadata.get("deletionGracePeriodSeconds"))
    phase = _word(status.get("phase"))
    worker = _text(_mapping(metadata.get("annotations")).get(WORKER_ANNOTATION)) or WORKER_CONTAINER
    containers = _same(tuple(_containers(spec, status, worker)))
    return PodFacts(
        ref=before.ref if before and before.ref == ref else ref,
        labels=_labels(_texts(metadata.get("labels"), LABELS)),
        annotations=Texts(_annotations(metadata, spec)),
        created=_time(metadata.get("creationTimestamp")),
        scheduled=_scheduled(status.get("conditions")),
        started=_started(status.get("containerStatuses"), worker),
        deletion_timestamp=_time(metadata.get("deletionTimestamp")),
        node=_word(spec.get("nodeName")),
        addresses=_addresses(status),
        restart_policy=_restart_policy(spec, worker),
        phase=phase,
        reason=_text(status.get("reason")),
        message=_text(status.get("message")),
        deletion_grace_seconds=grace if deletion_grace is None else deletion_grace,
        conditions=_same(tuple(_conditions(status.get("conditions")))),
        containers=containers,
        resource_version=_text(metadata.get("resourceVersion")) if _may_start(phase, containers) else None,
    )


def _restart_policy(spec: Mapping[str, Any], worker: str) -> str | None:
    # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restart-rules
    holders = [item for item in _mappings(spec.get("containers")) if item.get("name") == worker]
    return next(filter(None, (_word(item.get("restartPolicy")) for item in [*holders, spec])), None)


def _may_start(phase: str | None, containers: Iterable[ContainerFacts]) -> bool:
    # The phase is no evidence where the worker's status is known: a pod is Pending for as long as one of its
    # containers has never run, also while its worker runs, and Running once a native sidecar runs.
    worker = next((item for item in containers if item.type is ContainerType.WORKER), None)
    if worker is None:
        return phase in (None, "Pending")
    return phase in (None, "Pending", "Running") and not worker.started


def _annotations(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = _mapping(metadata.get("annotations"))
    found = _texts(given, ANNOTATIONS)
    if TASK_INSTANCE_ID_ANNOTATION in given:
        return found
    # A pod of the official executor: the workload of its worker names the task instance.
    ti_id = _workload_ti_id(spec)
    return (*found, (TASK_INSTANCE_ID_ANNOTATION, ti_id)) if ti_id else found


def _workload_ti_id(spec: Mapping[str, Any]) -> str | None:
    for container in _mappings(spec.get("containers")):
        args = container.get("args")
        if not isinstance(args, list):
            continue
        for option, value in pairwise(args):
            if option == WORKLOAD_OPTION and isinstance(value, str):
                return _ti_id_in(value)
    return None


def _ti_id_in(workload: str) -> str | None:
    try:
        return str(UUID(msgspec.json.decode(workload, type=_Workload).ti.id))
    except (msgspec.DecodeError, ValueError):
        return None


def _addresses(status: Mapping[str, Any]) -> str:
    # https://kubernetes.io/docs/concepts/services-networking/dual-stack/
    listed = [_text(item.get("ip")) for item in _mappings(status.get("podIPs"))]
    return ",".join(dict.fromkeys(filter(None, [_text(status.get("podIP")), *listed])))


def _conditions(value: Any) -> Iterator[ConditionFacts]:
    for item in _mappings(value):
        if type_ := _text(item.get("type")):
            yield _condition(
                type_,
                _text(item.get("status")) or "Unknown",
                _text(item.get("reason")),
                _text(item.get("message")),
            )


def _scheduled(value: Any) -> datetime | None:
    for item in _mappings(value):
        if item.get("type") == "PodScheduled" and item.get("status") == "True":
            return _time(item.get("lastTransitionTime"))
    return None


def _started(value: Any, worker: str) -> datetime | None:
    for item in _mappings(value):
        if item.get("name") == worker:
            states = _mapping(item.get("state"))
            return _started_at(states, ContainerState.RUNNING) or _started_at(
                states, ContainerState.TERMINATED
            )
    return None


# Cached: nearly all pods share a few of them.
_condition = lru_cache(maxsize=1024)(ConditionFacts)
_labels = lru_cache(maxsize=1024)(dict[str, str])


def _containers(spec: Mapping[str, Any], status: Mapping[str, Any], worker: str) -> Iterator[ContainerFacts]:
    # https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    native_sidecars = {
        _text(item.get("name"))
        for item in _mappings(spec.get("initContainers"))
        if item.get("restartPolicy") == "Always"
    }
    unlimited = _without_memory_limit(spec)
    images = {_text(item.get("name")): _word(item.get("image")) for item in _containers_of(spec)}
    for item in _mappings(status.get("initContainerStatuses")):
        type_ = ContainerType.SIDECAR if _text(item.get("name")) in native_sidecars else ContainerType.INIT
        yield _container(item, type_, unlimited, images, before_worker=True)
    for item in _mappings(status.get("containerStatuses")):
        is_worker = item.get("name") == worker
        type_ = ContainerType.WORKER if is_worker else ContainerType.SIDECAR
        yield _container(item, type_, unlimited, images, before_worker=False)


def _containers_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _mappings(spec.get("initContainers"))
    yield from _mappings(spec.get("containers"))


def _without_memory_limit(spec: Mapping[str, Any]) -> set[str | None]:
    """Name the containers that may take all the memory of their node."""
    # https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
    if _limits_memory(spec):
        return set()
    # The API server shows the resources of each container, also if there are none.
    return {
        _text(item.get("name"))
        for item in _containers_of(spec)
        if "resources" in item and not _limits_memory(item)
    }


def _limits_memory(holder: Mapping[str, Any]) -> bool:
    limits = _mapping(_mapping(holder.get("resources")).get("limits"))
    return limits.get("memory") not in (None, "0", 0)


def _container(
    item: Mapping[str, Any],
    type_: ContainerType,
    unlimited: set[str | None],
    images: Mapping[str | None, str | None],
    *,
    before_worker: bool,
) -> ContainerFacts:
    states = _mapping(item.get("state"))
    for state in (ContainerState.TERMINATED, ContainerState.RUNNING, ContainerState.WAITING):
        if isinstance(states.get(state), dict):
            break
    else:
        state = ContainerState.UNKNOWN
    detail = _mapping(states.get(state))
    last = _mapping(item.get("lastState"))
    lost = _mapping(last.get(ContainerState.TERMINATED))
    # The kubelet does not find a container that was running: it is shown as one that never ran, but for this.
    was_lost = lost.get("reason") == _LOST
    if was_lost and detail.get("reason") in _BEFORE_START:
        state, detail = ContainerState.TERMINATED, lost
    return ContainerFacts(
        name=_word(item.get("name")) or "unknown",
        type=type_,
        state=state,
        reason=_word(detail.get("reason")),
        message=_text(detail.get("message")),
        exit_code=_integer(detail.get("exitCode")),
        signal=_integer(detail.get("signal")),
        before_worker=before_worker,
        started=was_lost or _ever_started(states) or _ever_started(last),
        finished_at=_time(_mapping(states.get(ContainerState.TERMINATED)).get("finishedAt")),
        unlimited_memory=_text(item.get("name")) in unlimited,
        image=images.get(_text(item.get("name"))),
    )


def _ever_started(states: Mapping[str, Any]) -> bool:
    if isinstance(states.get(ContainerState.RUNNING), dict):
        return True
    return _started_at(states, ContainerState.TERMINATED) is not None


def _started_at(states: Mapping[str, Any], state: ContainerState) -> datetime | None:
    started_at = _time(_mapping(states.get(state)).get("startedAt"))
    # If a container could not be started, the kubelet sets no time, or the first second of 1970.
    return started_at if started_at and started_at.year > _EPOCH_YEAR else None


# The decoder makes dictionaries. To check for any Mapping takes several times as long.


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(value: Any, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    found = _mapping(value)
    return tuple(
        (name, text if name in _UNIQUE else shared(text))
        for name in names
        if isinstance(text := found.get(name), str)
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


@lru_cache(maxsize=1024)
def _same(items: tuple[T, ...]) -> tuple[T, ...]:
    """Return the one copy of a tuple: most running pods have equal conditions and containers."""
    return items


def _word(value: Any) -> str | None:
    return shared(value) if isinstance(value, str) and value else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> datetime | None:
    return _parsed(value) if isinstance(value, str) else None


@lru_cache(maxsize=1024)
def _parsed(value: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
