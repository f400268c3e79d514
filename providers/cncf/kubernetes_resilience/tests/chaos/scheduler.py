# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A scheduler of the chaos world: the real executor, over a Kubernetes thread that does nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes_resilience.executors import assembly, kubernetes_executor
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import WaitBudget
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import UNKNOWN_VERSION
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    CreationCancelledError,
    KubernetesApiError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodDeletionAccepted,
    PodNotCreated,
    PodNotDeleted,
    PodObservation,
)

from ..support.cluster import PausedRuntime, select
from .cluster import DONE, GRACE, WorldPod
from .holdings import holdings
from .poison import Poison

if TYPE_CHECKING:
    from .world import World


REFUSALS = {
    "refused": (422, "Invalid"),
    "unauthorized": (401, "Unauthorized"),
    "forbidden": (403, "Forbidden"),
}
"""Answers to create calls: one that nothing will change, and two that pass once credentials or permissions
are put right."""


class Killed(BaseException):
    """What ends a scheduler in the middle of its work."""


class Launcher:
    """What the launcher's calls do to the world, and how they are answered."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._world, self._tell, self._scheduler = scheduler.world, scheduler.tell, scheduler
        self.outcome = "ok"
        """How create calls end: ``ok``, ``unanswered`` (it happened), ``lost`` (not) or one of
        :data:`REFUSALS`."""

    async def create(self, launch_id: str, body: dict[str, Any]) -> None:
        outcome = "lost" if self._world.is_down else self.outcome
        self._world.first_calls.setdefault(launch_id, self._world.now)
        pod = self._world.pod_launched_as(launch_id)
        if pod is None and outcome in ("ok", "unanswered"):
            pod = self._world.launch(body)
        if pod and outcome == "ok":
            self._tell(PodCreated(launch_id, pod.facts()))
        elif outcome in REFUSALS:
            status, reason = REFUSALS[outcome]
            self._world.refused(launch_id, body, is_final=outcome == "refused")
            self._tell(PodNotCreated(launch_id, KubernetesApiError(outcome, status=status, reason=reason)))
        else:
            self._tell(PodNotCreated(launch_id, ConnectionFailedError("reset")))

    async def delete(
        self, ref: PodRef, resource_version: str | None = None, label: str | None = None
    ) -> None:
        pod = self._world.pod_of(ref)
        # A conflict: the pod is read again. What is still Pending goes in its new version.
        has_changed = pod and resource_version not in (None, pod.resource_version) and not pod.is_deleting
        has_label = pod is not None and label in (None, pod.labels["airflow-worker"])
        stays = pod and has_changed and (pod.has_started or not has_label)
        if not self._world.is_down and not stays:
            self.note_deletion(ref, label)
        if self._world.is_down or (pod and self._world.refuses_deletions):
            self._again(self.delete, ref, resource_version, label)
            return
        if pod and stays:
            self._tell(PodNotDeleted(pod.facts()))
            return
        if pod:
            self._world.deletion_arrived(pod)
            self._world.delete(pod)
        if pod and pod.exists:
            self._tell(PodDeletionAccepted(ref, int(GRACE.total_seconds())))
        else:
            self._tell(PodConfirmed(ref, None))

    def note_deletion(self, ref: PodRef, label: str | None = None) -> None:
        """Note that a deletion is asked for, unless the pod's label will keep it for another scheduler."""
        pod = self._world.pod_of(ref)
        has_label = pod is None or label in (None, pod.labels["airflow-worker"])
        if has_label or not self._world.is_anothers(pod, self._scheduler):
            self._world.deletion_was_asked_for(ref, self._scheduler, label=label)

    async def cancel(self, launch_id: str) -> None:
        if self._scheduler.runtime.remove_creation(launch_id):
            self._tell(PodNotCreated(launch_id, CreationCancelledError("cancelled")))

    async def clean_up(self, ref: PodRef) -> None:
        await self.delete(ref)

    async def look_for(self, namespace: str, name: str, launch_id: str) -> None:
        if self._world.is_down:
            self._again(self.look_for, namespace, name, launch_id)
        elif pod := self._world.pod_launched_as(launch_id):
            self._tell(PodCreated(launch_id, pod.facts()))

    async def mark_done(self, ref: PodRef) -> None:
        if self._world.is_down:
            self._again(self.mark_done, ref)
        elif pod := self._world.pod_of(ref):
            self._world.relabel(pod, {DONE: "True"})

    async def stop_and_keep(self, ref: PodRef) -> None:
        await self.mark_done(ref)

    async def confirm(self, ref: PodRef) -> None:
        if self._world.is_down:
            self._again(self.confirm, ref)
            return
        pod = self._world.pod_of(ref)
        self._tell(PodConfirmed(ref, pod.facts() if pod else None))

    async def adopt(self, ref: PodRef, labels: Mapping[str, str]) -> None:
        if self._world.is_down:
            self._again(self.adopt, ref, labels)
        elif pod := self._world.pod_of(ref):
            self._world.relabel(pod, dict(labels))
        else:
            self._tell(PodConfirmed(ref, None))

    async def list_pods(self, namespace: str | None, label_selector: str) -> list[PodFacts]:
        if self._world.is_away or self._world.is_down:
            raise ConnectionFailedError("refused")
        there = [pod for pod in self._world.pods if pod.exists]
        found = [pod.facts() for pod in select(there, label_selector)]
        for facts in found:
            self._scheduler.learn(facts)
        return found

    def _again(self, function: Any, *args: Any) -> None:
        """Have a command lie there again: the real launcher goes on trying."""
        self._scheduler.runtime.commands.append((function, args))


class Runtime(PausedRuntime):
    """The Kubernetes thread of a scheduler: its commands wait until the machine has them done."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._world, self._scheduler = scheduler.world, scheduler
        self.launcher = Launcher(scheduler)
        self.is_alive = True
        self.may_wait = False

    @property
    def is_away(self) -> bool:
        return self._world.is_down or self._world.is_away

    def start(self, *, wait: bool = True) -> None:
        if not self.is_alive:
            self._scheduler.relist()
        self.is_alive = True

    def submit(self, function: Any, *args: Any) -> None:
        super().submit(function, *args)
        if function == self.launcher.delete and UNKNOWN_VERSION not in args:  # else what it meets decides
            self.launcher.note_deletion(args[0], *args[2:])
        elif function == self.launcher.create:
            self._world.creation_was_asked_for(*args)

    def call(self, coroutine: Any, timeout: float) -> Any:
        if not self.may_wait:
            self._world.complain("I7: the scheduler's loop has waited for Kubernetes")
        return super().call(coroutine, timeout)

    def creations_of(self, ti_id: str) -> set[str]:
        """Return the launch ids of a task instance's create calls that have not been carried out."""
        return {
            args[0]
            for function, args in self.commands
            if function == self.launcher.create
            and args[1]["metadata"]["annotations"]["airflow-resilience/task-instance-id"] == ti_id
        }

    def cancelled(self) -> set[str]:
        """Return the launch ids of the creations that are to be cancelled."""
        return {args[0] for function, args in self.commands if function == self.launcher.cancel}

    def remove_creation(self, launch_id: str) -> bool:
        """Remove the create call of a launch that is not carried out yet; return whether there was one."""
        kept = [item for item in self.commands if (item[0], item[1][0]) != (self.launcher.create, launch_id)]
        is_removed = len(kept) < len(self.commands)
        self.commands[:] = kept
        return is_removed

    def carry_out(self, index: int, outcome: str) -> None:
        function, args = self.commands.pop(index)
        self.launcher.outcome = outcome
        with suppress(ConnectionFailedError):  # the real one logs it
            asyncio.run(function(*args))

    def carry_out_all(self, outcome: str = "ok") -> None:
        for _ in range(len(self.commands)):  # what fails is there again afterwards
            self.carry_out(0, outcome)


class Scheduler:
    """One scheduler: its executor, and what its informer has to tell."""

    def __init__(self, world: World, job_id: int) -> None:
        self.world, self.job_id = world, job_id
        self.stream: list[PodObservation] = []
        """What the informer has to tell and has not told yet."""
        self.told: list[PodObservation] = []
        self.beat_at: datetime | None = None
        """When it sent its last heartbeat."""
        self.phases: dict[str, str | None] = {}
        """The last that it was told of each pod's phase, by UID; Running if its worker runs."""
        self._seen: dict[str, PodFacts] = {}
        self.runtime = Runtime(self)
        self.executor = self._start()
        # Histories know the executor by these alone.
        self.parts, self.registry = self.executor._parts, self.executor._registry
        self.inbox, self.clock = self.executor._inbox, self.executor._clock
        self._holdings = holdings(self.executor)

    def holds(self) -> dict[str, int]:
        """Return which collections of the executor have more in them than when it started, and how much."""
        return {
            name: size for name, size in holdings(self.executor).items() if size > self._holdings.get(name, 0)
        }

    def _start(self) -> Any:
        made = assembly.KubernetesRuntime
        assembly.KubernetesRuntime = lambda settings, emit: self.runtime  # type: ignore[misc,assignment]
        try:
            executor = kubernetes_executor.KubernetesExecutor()
            executor._clock = self.world.clock
            executor._wait_budget = WaitBudget()  # of a process of its own
            executor.job_id = self.job_id
            executor.start()
        finally:
            assembly.KubernetesRuntime = made  # type: ignore[misc]
        receive = executor._parts.event_filter.receive

        def watched(message: Any) -> None:
            # The executor goes on after an error, with a line in its log. Here there should be none.
            try:
                receive(message)
            except Poison:
                raise
            except Exception as error:
                self.world.complain(f"I5: a message was lost by {error!r}: {message}")
                raise

        executor._parts.event_filter.receive = watched  # type: ignore[method-assign]
        return executor

    def fail_to_relaunch(self, error: BaseException) -> None:
        """Have it fail, once, after the commit of a decision that a running task runs again."""
        queue = self.parts.launch_queue
        relaunch = queue.relaunch

        def fail(launch: Any, entry: Any) -> None:
            if entry and entry.next_ti_id:
                queue.relaunch = relaunch
                raise error
            relaunch(launch, entry)

        queue.relaunch = fail

    @property
    def is_adopting(self) -> bool:
        """Whether it still looks for pods of a dead scheduler."""
        return bool(self.registry.adopting() or self.parts.adopter._abandoned.orphans)

    def tell(self, message: Any) -> None:
        if facts := getattr(message, "facts", None):
            self.learn(facts)
        self.inbox.put(message)

    def learn(self, facts: PodFacts) -> None:
        self.phases[facts.ref.uid] = "Running" if facts.has_started and not facts.is_terminal else facts.phase

    def deliver(self) -> None:
        """Let the informer tell the next that it has to tell."""
        observation = self.stream.pop(0)
        self.told.append(observation)
        self.tell(observation)

    def notice(self, pod: WorldPod) -> None:
        """Add to the stream what the informer would see of a change."""
        label = pod.labels.get("airflow-worker")
        if not pod.is_tidy and label == str(self.job_id):
            facts = pod.facts()
            if self._seen.get(pod.uid) != facts:
                self._seen[pod.uid] = facts
                self.stream.append(PodObservation(facts))
        elif pod.uid in self._seen:
            self.stream.append(PodObservation(self._seen.pop(pod.uid), gone=True))

    def relist(self) -> None:
        """Lose what the stream had to say, and find out by a list what has changed."""
        known: dict[str, PodFacts] = {}
        for observation in self.told:
            if observation.gone:
                known.pop(observation.facts.ref.uid, None)
            else:
                known[observation.facts.ref.uid] = observation.facts
        self.stream.clear()
        self._seen = known
        for pod in self.world.pods:
            self.notice(pod)
