# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Facts about a launch, and its possible states.

A launch is one pod created for one try of a task instance. The state changes in the registry, and nowhere
else (:mod:`.registry`). Times are on the executor's monotonic clock, in seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, Final, NamedTuple

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    Orphan,
    Place,
    Try,
    locate,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.workload import StoredWorkload
from airflow.providers.cncf.kubernetes_resilience.executors.masking import mask_secrets
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Command
from airflow_resilience.context import ExecutionContext
from airflow_resilience.ledger_entries import Histories, LedgerEntry
from airflow_resilience.outages import Dependency


class LaunchState(StrEnum):
    """The state of a launch."""

    WAITING = "waiting"
    """Its pod has not been asked for: it is not due, or a pod before it has not gone."""
    HELD = "held"
    """No pod is created: a dependency of several launches is unavailable."""
    CREATING = "creating"
    """Its pod was asked for and is not known to exist."""
    PENDING = "pending"
    """Its pod exists, and its worker has not been seen to start."""
    STARTED = "started"
    """Its worker has been seen to start, or its pod in a phase in which a worker cannot."""
    ENDED = "ended"
    """Its pod has ended, or was given up, and that is not settled yet."""
    DEPARTING = "departing"
    """The launch is superseded, and its pod may still run or start."""


class Lasting(StrEnum):
    """A state of a launch's pod that is its end if it lasts."""

    WORKER = "worker"
    """The worker has ended for good, and another container runs on."""
    UNSCHEDULABLE = "unschedulable"
    """The pod has no node, and the scheduler of Kubernetes has found none."""
    PENDING = "pending"
    """The worker does not start."""
    DELETION = "deletion"
    """The pod is being deleted."""


_LIVING = frozenset({LaunchState.CREATING, LaunchState.PENDING, LaunchState.STARTED})

ALLOWED: Mapping[LaunchState | None, frozenset[LaunchState | None]] = {
    None: frozenset({LaunchState.WAITING, *_LIVING, LaunchState.DEPARTING}),
    LaunchState.WAITING: frozenset({LaunchState.CREATING, LaunchState.HELD, None}),
    LaunchState.HELD: frozenset({LaunchState.WAITING, None}),
    LaunchState.CREATING: frozenset({LaunchState.PENDING, LaunchState.STARTED, LaunchState.ENDED})
    | {LaunchState.HELD, LaunchState.DEPARTING, None},
    LaunchState.PENDING: frozenset({LaunchState.STARTED, LaunchState.ENDED, LaunchState.DEPARTING, None}),
    LaunchState.STARTED: frozenset({LaunchState.PENDING, LaunchState.ENDED, LaunchState.DEPARTING, None}),
    LaunchState.ENDED: _LIVING | {LaunchState.DEPARTING, None},
    LaunchState.DEPARTING: _LIVING | {None},
}
"""
The states that may follow each state. None means that the registry does not know the launch.

A launch whose create call was carried out twice may have started, and be pending again with the second pod. A
launch that was given up may start after all, until replaced.
"""


class EarlierFailures(NamedTuple):
    """Failures before a launch that is due."""

    histories: Histories
    """The ledger's entries about its try."""
    previous_try: ExecutionContext | None
    """Failure of the try before; None without one, or if unknown."""

    def lost(self, ti_id: str) -> LedgerEntry | None:
        """Return the loss after which a task instance runs again; None if the task instance does not."""
        losses = self.histories.whole_try.entries
        return next((entry for entry in losses if entry.next_ti_id == ti_id), None)

    def decided(self, ti_id: str) -> LedgerEntry | None:
        """Return the entry that led to a launch of a task instance; None for the first launch."""
        return self.histories.launches.last or self.lost(ti_id)


@dataclass(slots=True)
class Waiting:
    """Facts about a launch without a create call."""

    job: KubernetesJob | None
    """Job to launch. None for an adopted task instance, whose job is not known here: the scheduler gets the
    task instance back, and queues it again. None for a task instance that is to fail."""
    not_before: float = 0.0
    """Earliest time of its creation."""
    is_relaunch: bool = False
    """Whether there was a launch before, which has failed."""
    previous_name: str | None = None
    """Name of the pod that it replaces; None if it replaces none, or one of another scheduler."""
    fails: str | None = None
    """Failure of its task instance, which is reported in place of a launch, once no pod before can start any
    more. None to launch it."""
    context: ExecutionContext | None = None
    """The failure for callbacks and the audit log; None if the ledger has the context."""
    resumed_for: Dependency | None = None
    """Dependency for which this launch was held last, and is no longer."""

    @property
    def is_another(self) -> bool:
        """Whether there was a launch before, of this scheduler or of a dead one."""
        return self.is_relaunch or self.job is None


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """When a pod is to be asked for, the first time or again."""

    not_before: float
    final: KubernetesApiError | None = None
    """The error with which it is given up; None if it is repeated."""


@dataclass(slots=True)
class Creation:
    """The calls to create a launch's pod, until that pod is known."""

    body: dict[str, Any]
    """The manifest, kept so that the call can be repeated."""
    token: str
    """The workload's token in the manifest."""
    was_unclear: bool = False
    """Whether a call had no clear answer."""
    unanswered: int = 0
    """Number of its failures by an API server that was unavailable or overloaded."""
    alone: float = 0.0
    """Seconds of such failures while pods of other launches were created."""
    others: tuple[float, int] = (0.0, 0)
    """Time of the last look at these pods, on the executor's monotonic clock, and their number."""
    refusals: int = 0
    """Number of its refusals and repetitions."""
    rejections: int = 0
    """The same of the answers for which ``task_publish_max_retries`` is set."""
    is_renamed: bool = False
    """Whether the pod has got another name, because the first one was taken."""
    next_attempt: NextAttempt | None = NextAttempt(0.0)
    """The next step: the first call, or what follows a call that has failed. None while a call is under
    way."""

    @property
    def may_exist(self) -> bool:
        """Whether a call is under way or has had no clear answer."""
        return self.was_unclear or self.next_attempt is None


@dataclass(slots=True)
class Deletion:
    """Deletion of the pod of a superseded launch."""

    deadline: float
    """End of the next launch's wait for the deletion. Infinite while it is not known whether there is a
    pod."""
    command: Command | None = None
    """Asks for it, and is repeated if it is lost; None if nothing does."""
    unless_started: bool = False
    """Whether the pod stays if it has started before its deletion."""
    seen: PodRef | None = None
    """A pod that was seen while the create call of the launch has had no answer."""
    is_accepted: bool = False
    """Whether the API server has accepted it, so that the pod goes without our doing."""

    def is_over(self, now: float) -> bool:
        """Return whether the pod is waited for no longer."""
        return self.deadline <= now

    def limit(self, deadline: float) -> None:
        """Have the pod waited for until then and no longer."""
        self.deadline = min(self.deadline, deadline)

    def accept(self, deadline: float) -> None:
        """Note that the API server has accepted it; the pod is waited for until then and no longer."""
        if not self.is_accepted or deadline < self.deadline:
            self.deadline, self.is_accepted = deadline, True

    def describe(self, now: float) -> str:
        """Say what is waited for, and for how long, for people."""
        if self.deadline == inf:
            return "waits until its pods can be listed"
        step = "accepted" if self.is_accepted else "asked for"
        return f"deletion {step}; waited for at most {max(0.0, self.deadline - now):.0f} s"


NO_DEADLINES: Final[dict[Lasting, float]] = {}
"""Of most launches. A single one is kept, and never changed."""


@dataclass(slots=True, eq=False)
class Launch:
    """A pod for a try of a task instance, from before its create call on."""

    key: TaskInstanceKey
    ti_id: str
    namespace: str = ""
    """Of its pod; not known while it waits."""
    name: str = ""
    """Of its pod; not known while it waits."""
    number: int = 1
    """1 for the first launch of a try; one more for each relaunch. Not known while it waits."""
    workload: StoredWorkload | None = None
    """Job of further launches; None for an adopted pod."""
    launch_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: LaunchState | None = None
    """Changed by the registry only; None for a launch that it does not know."""
    waiting: Waiting | None = None
    """Until its pod is asked for."""
    creation: Creation | None = None
    """From then on until its pod is known."""
    calls: int = 0
    """Create calls that are under way. While there is one, the known pod need not be the last of this launch:
    an earlier call without an answer may have created it, and it may have gone."""
    token_made_at: float = 0.0
    """When its workload's token was made, or a little later."""
    first_token_at: float = 0.0
    """When the first of these tokens was made: an earlier call may have created the pod with that token."""
    deletion: Deletion | None = None
    """Once it is superseded, until its pod is gone or is waited for no longer."""
    ref: PodRef | None = None
    """The pod's identity; None until the API server has confirmed its creation."""
    facts: PodFacts | None = None
    """The last that was seen of the pod."""
    is_gone: bool = False
    """Whether the API server has said that the pod does not exist any more."""
    is_silent: bool = False
    """Whether the worker's heartbeat has timed out."""
    deadlines: dict[Lasting, float] = field(default_factory=lambda: NO_DEADLINES)
    """When a state that the pod is in is its end."""
    confirm_at: float | None = None
    """When the API server is asked about the pod; infinite until it has answered. None if an informer sees
    the pod."""
    was_asked: bool = False
    """Whether the API server was asked about the pod since an informer has last seen it."""
    failure: PodFailure | None = None
    """Its failure; None if its pod succeeded, or its worker did and a sidecar runs on. The value means
    nothing before the end of the launch."""
    ended_at: float = 0.0
    """When its pod was first known to have ended, or to be given up."""
    given_up: PodFailure | None = None
    """Its failure in the ledger, for a launch that was adopted later. Only the end of its worker changes it:
    the dead scheduler may have acted on it already."""
    was_delayed: bool = False
    """Whether an outage of the API server, or a scheduling gate, may have kept its pod from starting."""
    has_survived: bool = False
    """Whether its pod was given up and has started all the same."""
    held_for: Dependency | None = None
    """Dependency for which this launch, or the previous one, is or was held last; None if neither was."""
    held_since: float = 0.0
    """When this launch, or the previous one, was held first; 0 if neither was, or the dependency is there."""
    has_siblings: bool = False
    """Whether its task instance may have had more pods than its number says."""

    def runs(self, hostname: str | None) -> bool:
        """
        Return whether a running task runs in its pod, as far as is known.

        :param hostname: what the worker has reported
        """
        place = locate(hostname, name=self.name, addresses=self.facts.addresses if self.facts else "")
        # Only this pod can have started the task if there was no other, whatever its host is called.
        is_alone = self.number == 1 and not self.has_siblings
        return place is Place.HERE or (place is Place.UNKNOWN and is_alone)

    @property
    def tried(self) -> Try:
        """The try of its task instance, as its pod says it."""
        return self.key, self.ti_id

    @property
    def may_run(self) -> bool:
        """Whether its pod runs or may start, as far as is known; one that is not known may exist."""
        if self.ref is None:
            return self.creation is not None and self.creation.may_exist
        return self.facts is None or not self.facts.is_terminal

    def is_creation_due(self, now: float) -> bool:
        """Return whether the next attempt after a failed create call is due."""
        attempt = self.creation.next_attempt if self.creation else None
        return attempt is not None and attempt.not_before <= now

    @property
    def is_relaunch(self) -> bool:
        """Whether it waits, and there was a launch before, which has failed."""
        return self.waiting is not None and self.waiting.is_relaunch

    @property
    def is_handed_back(self) -> bool:
        """Whether the scheduler is to queue its task instance again, since its job is not known here."""
        return self.waiting is not None and not (self.waiting.job or self.waiting.fails)

    @property
    def may_come_back(self) -> bool:
        """Whether it is superseded, and its pod stays if it has started before its deletion."""
        return self.deletion is not None and self.deletion.unless_started

    def gives_way_to(self, superseded: Launch) -> bool:
        """Return whether it waits to replace that launch, and gives way if the pod of that launch starts."""
        return self.waiting is not None and self.waiting.is_another and self.ti_id == superseded.ti_id

    @property
    def worker_uid(self) -> str:
        """Identity of its worker in the ledger."""
        return self.ref.uid if self.ref else self.launch_id

    @property
    def last_seen(self) -> PodFacts:
        """The last facts of its pod, which has succeeded."""
        if self.facts is None:
            raise AssertionError("a pod that has succeeded was seen")
        return self.facts

    def has_outlived(self, entry: LedgerEntry, pod: PodFacts) -> bool:
        """
        Return whether its pod has started after the decision to give it up: the end is another failure.

        A new entry takes the place of this one, so that one launch is counted once. If this scheduler has not
        followed the pod all the time, the pod has to show that it has started. A pod that is being deleted
        does not count: that decision may be the reason.
        """
        has_started = pod.has_started and not pod.deletion_timestamp
        return entry.was_pending and (self.has_survived or has_started)

    def describe(self, now: float) -> str:
        """Say what is known of it in one line, for people."""
        if self.waiting:
            if self.waiting.fails:
                return f"fails once no pod of it can start any more: {self.waiting.fails}"
            if self.state is LaunchState.HELD:
                return f"held for {now - self.held_since:.0f} s: {self.held_for} is away"
            due = max(0.0, self.waiting.not_before - now)
            goal = "launched" if self.waiting.job else "handed back to the scheduler"
            return f"{goal} in {due:.0f} s, once the pods before it are gone"
        if self.deletion and not self.name:
            return self.deletion.describe(now)
        parts = [f"launch {self.number}, pod {self.namespace}/{self.name}"]
        if self.creation and self.creation.next_attempt and not self.deletion:
            parts.append(f"asked for in {max(0.0, self.creation.next_attempt.not_before - now):.0f} s")
        if self.facts and self.facts.node:
            parts.append(f"node {self.facts.node}")
        if self.facts and self.facts.phase:
            parts.append(f"phase {self.facts.phase}")
        if self.state is LaunchState.ENDED:
            parts.append(str(self.failure or "succeeded"))
        if self.deletion:
            parts.append(self.deletion.describe(now))
        return ", ".join(parts)

    @property
    def is_created_again(self) -> bool:
        """Whether its pod does not exist, as far as is known, and a call to create it has failed."""
        # A renamed one is asked for again at once.
        calls = self.creation
        return calls is not None and bool(calls.unanswered or calls.refusals or calls.rejections)

    @property
    def has_started(self) -> bool:
        """Whether its worker has been seen to start, or its pod in a phase in which a worker cannot."""
        return self.facts is not None and not self.facts.may_start


def launch_of(orphan: Orphan, pod: PodFacts, *, has_siblings: bool) -> Launch:
    """
    Return the launch of a found pod.

    :param has_siblings: whether the task instance may have other pods too
    """
    return Launch(
        key=orphan.key,
        ti_id=orphan.pod_id,
        namespace=pod.ref.namespace,
        name=pod.ref.name,
        number=pod.launch_number,
        ref=pod.ref,
        facts=mask_secrets(pod),
        has_siblings=has_siblings,
    )
