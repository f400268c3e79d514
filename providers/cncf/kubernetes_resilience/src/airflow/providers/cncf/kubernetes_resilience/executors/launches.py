# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Which pod is the current launch of which task instance.

Only the scheduler's thread touches the registry. Events of pods that are not in it change no task.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow.executors.workloads import ExecuteTask
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from kubernetes.client import V1Pod

from airflow.providers.cncf.kubernetes_resilience.executors.hosts import runs_in
from airflow.providers.cncf.kubernetes_resilience.pods.facts import LAUNCH_ID_ANNOTATION, PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.failure import PodFailure

Command = tuple[str, tuple[Any, ...]]
"""Something to be done by the Kubernetes thread: the name of a launcher's method, and its arguments."""


_USUAL = (
    b'{"token":"","dag_rel_path":".py","bundle_info":{"name":"dags-folder"},"log_path":"dag_id=/run_id='
    b'manual__scheduled__2026-01-01T00:00:00+00:00/task_id=/map_index=/attempt=1.log","ti":{"id":"","task_id":'
    b'"","dag_id":"","run_id":"","try_number":1,"dag_version_id":"","map_index":,"context_carrier":{},"queue":'
    b'"default","pool_slots":1,"priority_weight":1}}'
)
"""What most workloads have in common, so that it need not be kept for each."""


@dataclass(slots=True)
class WaitingLaunch:
    """A launch whose pod has not been asked for yet."""

    job: KubernetesJob
    ti_id: str
    not_before: float = 0.0
    """Earliest time of its creation, on the executor's monotonic clock (seconds)."""
    is_relaunch: bool = False
    """Whether there was a launch before, which has failed."""
    previous_name: str | None = None
    """Name of the pod that it replaces; None if it replaces none, or one of another scheduler."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """
    A job as it is kept for the case that it has to be launched again: most never are.

    The workload is kept as the JSON that a worker is given of it, without what it says by default, and
    compressed. That takes a twentieth of the memory.
    """

    workload: bytes
    override: V1Pod | None
    template: str | None
    image: str | None

    @classmethod
    def of(cls, job: KubernetesJob) -> Recipe:
        """Write down a job. Its token is left out: each launch is given another one."""
        workload: Any = job.command[0]  # the type hint is of Airflow 2
        workload = workload.model_copy(update={"token": ""})
        compressor = zlib.compressobj(zdict=_USUAL)
        packed = compressor.compress(workload.model_dump_json(exclude_defaults=True).encode())
        return cls(
            packed + compressor.flush(),
            job.kube_executor_config,
            job.pod_template_file,
            job.kube_image,
        )

    def job(self, key: TaskInstanceKey) -> KubernetesJob:
        """Return the job of a task instance, to be launched again."""
        workload = zlib.decompressobj(zdict=_USUAL).decompress(self.workload)
        command: Any = [ExecuteTask.model_validate_json(workload)]
        return KubernetesJob(key, command, self.override, self.template, self.image)


@dataclass(slots=True, eq=False)
class Launch:
    """One pod created for one try of a task instance."""

    key: TaskInstanceKey
    ti_id: str
    namespace: str
    name: str
    number: int
    """1 for the first launch of a try; one more for each relaunch."""
    recipe: Recipe | None = None
    """What to launch again; None for an adopted pod."""
    launch_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    ref: PodRef | None = None
    """The pod's identity; None until the API server has confirmed its creation."""
    facts: PodFacts | None = None
    """The last that was seen of the pod."""
    body: dict[str, Any] | None = None
    """The manifest, kept until its creation is confirmed so that the call can be repeated."""
    token: str | None = None
    """The workload's token in the manifest, kept as long."""
    token_made_at: float = 0.0
    """When it was made, or a little later, on the executor's monotonic clock (seconds)."""
    adopted_from: int | None = None
    """The dead scheduler's job, for a launch that was adopted."""
    given_up: PodFailure | None = None
    """How it failed according to the ledger, for a launch that was adopted after that had been decided. What
    the pod says now does not change it: the dead scheduler may have acted upon it already."""
    publish_attempts: int = 0
    """How often its creation was refused for now."""
    calls: int = 0
    """Create calls that are under way. While there is one, the pod that is known need not be the last of this
    launch: the call before may have been carried out without an answer, and its pod be gone by now."""
    unanswered: int = 0
    """How often its creation has failed because the API server was away or overloaded."""
    was_unclear: bool = False
    """Whether a call to create its pod had no clear answer."""
    refusals: int = 0
    """How often in a row its creation was refused for something that is not its manifest's fault."""
    was_held: bool = False
    """Whether an outage of the API server may have kept its pod from starting."""
    has_survived: bool = False
    """Whether its pod was given up on and has started all the same."""
    is_renamed: bool = False
    """Whether its pod has got another name, because the first one was taken."""
    may_exist: bool = False
    """Whether a call to create the pod is under way or has had no clear answer."""
    has_siblings: bool = False
    """Whether its task instance may have had other pods, beside those that its number tells of."""

    def runs(self, hostname: str | None) -> bool:
        """
        Whether a task that runs, runs in its pod, as far as can be told.

        :param hostname: what the worker has reported
        """
        return runs_in(
            hostname,
            name=self.name,
            addresses=self.facts.addresses if self.facts else "",
            is_alone=self.number == 1 and not self.has_siblings,
        )

    @property
    def is_created_again(self) -> bool:
        """Whether its pod does not exist, as far as is known, and a call to create it has failed."""
        # A renamed one is asked for again at once.
        return self.ref is None and bool(self.unanswered or self.refusals or self.publish_attempts)

    @property
    def has_started(self) -> bool:
        """Whether its pod has been seen in another phase than Pending."""
        return self.facts is not None and self.facts.phase not in (None, "Pending")


@dataclass(slots=True)
class Departure:
    """A superseded pod that may still run or start."""

    key: TaskInstanceKey
    deadline: float
    """When it is waited for no longer, on the executor's monotonic clock (seconds)."""
    command: Command | None
    """What has its deletion asked for; None if something else sees to that."""
    launch: Launch | None = None
    """What it was the pod of, or was to be; None if that is not known."""
    unless_started: bool = False
    """Whether it stays if it has started by the time that its deletion is carried out."""
    accepted: bool = False
    """Whether the API server has accepted its deletion, so that it goes without our doing."""


class LaunchRegistry:
    """The current launch of each task instance, and the superseded pods that have not gone yet."""

    def __init__(self) -> None:
        self._current: dict[TaskInstanceKey, Launch] = {}
        self._by_uid: dict[str, Launch] = {}
        self._by_launch_id: dict[str, Launch] = {}
        self._starting: dict[str, Launch] = {}
        self._leaving: dict[TaskInstanceKey, set[str]] = {}
        self._departures: dict[str, Departure] = {}

    def __len__(self) -> int:
        return len(self._current)

    def __iter__(self) -> Iterator[Launch]:
        return iter(self._current.values())

    def get(self, key: TaskInstanceKey) -> Launch | None:
        """Return the current launch of a task instance."""
        return self._current.get(key)

    def is_current(self, launch: Launch) -> bool:
        """Whether nothing has superseded or released the launch."""
        return self._current.get(launch.key) is launch

    def hold(self, launch: Launch) -> None:
        """Make this the current launch; one that was there before is not known any more."""
        self.release(launch.key)
        self._current[launch.key] = launch
        self._by_launch_id[launch.launch_id] = self._starting[launch.launch_id] = launch
        if launch.ref:
            self._by_uid[launch.ref.uid] = launch

    def release(self, key: TaskInstanceKey) -> Launch | None:
        """Forget the current launch of a task instance and return it."""
        launch = self._current.pop(key, None)
        if launch:
            self._by_launch_id.pop(launch.launch_id, None)
            self._starting.pop(launch.launch_id, None)
            if launch.ref:
                self._by_uid.pop(launch.ref.uid, None)
        return launch

    def find(self, pod: PodFacts) -> Launch | None:
        """
        Return the launch that this very pod is.

        An event may arrive before the answer to the create call. The pod is recognised by its launch id
        then, which settles its UID.
        """
        launch = self._by_uid.get(pod.ref.uid)
        if launch is None:
            launch = self._by_launch_id.get(pod.annotations.get(LAUNCH_ID_ANNOTATION, ""))
            if launch is None or launch.ref is not None:
                return None
            self.bind(launch, pod.ref)
        return launch

    def by_uid(self, uid: str) -> Launch | None:
        """Return the current launch whose pod has that UID."""
        return self._by_uid.get(uid)

    def by_launch_id(self, launch_id: str) -> Launch | None:
        """Return the current launch with that id."""
        return self._by_launch_id.get(launch_id)

    def bind(self, launch: Launch, ref: PodRef) -> None:
        """Note the identity of the pod that was created for a launch, in place of an earlier one."""
        if launch.ref:
            self._by_uid.pop(launch.ref.uid, None)
        launch.ref, launch.body, launch.token = ref, None, None
        self._by_uid[ref.uid] = self._starting[launch.launch_id] = launch

    def pending(self) -> list[Launch]:
        """Return the current launches whose pods exist and have not been seen to start."""
        # Each launch is let go of once, when it has started: most are, and stay, for hours.
        for launch in list(self._starting.values()):
            if launch.has_started:
                del self._starting[launch.launch_id]
        return [launch for launch in self._starting.values() if launch.ref]

    def starting(self) -> list[Launch]:
        """Return the current launches that have not been seen to start, with and without pods."""
        self.pending()
        return list(self._starting.values())

    def leave(
        self,
        key: TaskInstanceKey,
        token: str,
        deadline: float,
        command: Command | None = None,
        *,
        launch: Launch | None = None,
        unless_started: bool = False,
    ) -> None:
        """
        Note a superseded pod that may still run; the next launch of the key waits for it.

        :param token: the pod's UID, or the launch id of a creation whose outcome is not known yet
        :param deadline: when it is waited for no longer, on the executor's monotonic clock (seconds)
        :param command: what has its deletion asked for
        :param launch: what it was the pod of, or was to be
        :param unless_started: whether it stays if it has started by then
        """
        self._leaving.setdefault(key, set()).add(token)
        self._departures[token] = Departure(key, deadline, command, launch, unless_started)

    def leaves_by(self, token: str, deadline: float) -> None:
        """Note that a superseded pod's deletion was accepted; it is waited for until then and no longer."""
        if departure := self._departures.get(token):
            known = departure.deadline if departure.accepted else deadline
            departure.deadline, departure.accepted = min(known, deadline), True

    def left(self, token: str) -> TaskInstanceKey | None:
        """Note that a superseded pod is gone; return the key it was waited for, if it was."""
        departure = self._departures.pop(token, None)
        if departure is None:
            return None
        tokens = self._leaving[departure.key]
        tokens.remove(token)
        if not tokens:
            del self._leaving[departure.key]
        return departure.key

    def departure(self, token: str) -> Departure | None:
        """Return what is known of a superseded pod, if it is waited for."""
        return self._departures.get(token)

    def departures(self, key: TaskInstanceKey) -> list[Departure]:
        """Return the superseded pods of a key that are waited for."""
        return [self._departures[token] for token in self._leaving.get(key, ())]

    def pending_deletions(self) -> list[Command]:
        """Return the commands that have superseded pods deleted and are not known to be carried out."""
        return [item.command for item in self._departures.values() if item.command and not item.accepted]

    def prune(self, now: float) -> None:
        """Forget what is waited for no longer, also of keys that have no next launch."""
        for key in list(self._leaving):
            self.is_clear(key, now)

    def is_clear(self, key: TaskInstanceKey, now: float) -> bool:
        """Whether no superseded pod of the key has to be waited for."""
        for token in list(self._leaving.get(key, ())):
            if self._departures[token].deadline <= now:
                self.left(token)
        return key not in self._leaving
