# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A scheduler of the chaos world: the real executor, over a Kubernetes thread that does nothing by itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes_resilience.executors import kubernetes_executor
from airflow.providers.cncf.kubernetes_resilience.pods.errors import ConnectionFailedError, KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodDeleted,
    PodDeletionAccepted,
    PodNotCreated,
    PodObservation,
)
from cluster_lab.apiserver.selectors import parse_labels

from .cluster import DONE, GRACE, WorldPod

if TYPE_CHECKING:
    from .world import World


class Launcher:
    """What the launcher's calls do to the world, and how they are answered."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._world, self._tell, self._scheduler = scheduler.world, scheduler.tell, scheduler
        self.outcome = "ok"
        """How create calls end: ``ok``, ``unanswered`` (it happened), ``lost`` (not) or ``refused``."""

    async def create(self, launch_id: str, body: dict[str, Any]) -> None:
        pod = self._world.pod_launched_as(launch_id)
        if pod is None and self.outcome in ("ok", "unanswered"):
            pod = self._world.launch(body)
        if pod and self.outcome == "ok":
            self._tell(PodCreated(launch_id, pod.facts().ref))
        elif self.outcome == "refused":
            self._world.refused(body)
            self._tell(PodNotCreated(launch_id, KubernetesApiError("forbidden", status=403)))
        else:
            self._tell(PodNotCreated(launch_id, ConnectionFailedError("reset")))

    async def delete(self, ref: PodRef) -> None:
        pod = self._world.pod_of(ref)
        if pod and self._world.refuses_deletions:
            self._scheduler.runtime.commands.append((self.delete, (ref,)))  # it is tried again
            return
        if pod:
            self._world.delete(pod)
        if pod and pod.exists:
            self._tell(PodDeletionAccepted(ref, int(GRACE.total_seconds())))
        else:
            self._tell(PodDeleted(ref))

    async def clean_up(self, ref: PodRef) -> None:
        await self.delete(ref)

    async def look_for(self, namespace: str, name: str, launch_id: str) -> None:
        if pod := self._world.pod_launched_as(launch_id):
            self._tell(PodCreated(launch_id, pod.facts().ref))

    async def mark_done(self, ref: PodRef) -> None:
        if pod := self._world.pod_of(ref):
            self._world.relabel(pod, {DONE: "True"})

    async def confirm(self, ref: PodRef) -> None:
        pod = self._world.pod_of(ref)
        self._tell(PodConfirmed(ref, pod.facts() if pod else None))

    async def adopt(self, ref: PodRef, label: str) -> bool:
        pod = self._world.pod_of(ref)
        if pod:
            self._world.relabel(pod, {"airflow-worker": label})
        return pod is not None

    async def list_pods(self, namespaces: Any, label_selector: str, field_selector: str) -> list[PodFacts]:
        if self._world.is_away:
            raise ConnectionFailedError("refused")
        wanted = parse_labels(label_selector)
        return [
            pod.facts()
            for pod in self._world.pods
            if pod.exists
            and pod.phase != field_selector.partition("status.phase!=")[2]
            and all(requirement.matches(pod.labels) for requirement in wanted)
        ]


class Runtime:
    """Stands for the Kubernetes thread of a scheduler: its commands wait until the machine has them done."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._world, self._scheduler = scheduler.world, scheduler
        self.launcher = Launcher(scheduler)
        self.is_alive = True
        self.commands: list[tuple[Any, tuple[Any, ...]]] = []
        self.may_wait = False

    def start(self, *, wait: bool = True) -> None:
        if not self.is_alive:
            self._scheduler.relist()
        self.is_alive = True

    def crash(self) -> None:
        """End the thread, and with it all that it was asked for."""
        self.commands.clear()
        self.is_alive = False

    def submit(self, function: Any, *args: Any) -> None:
        if not self.is_alive:
            raise RuntimeError("the Kubernetes runtime is not running")
        if function == self.launcher.delete:
            self._world.deletion_was_asked_for(args[0])
        self.commands.append((function, args))

    def call(self, coroutine: Any, timeout: float) -> Any:
        if not self.may_wait:
            self._world.complain("I7: the scheduler's loop has waited for Kubernetes")
        if not self.is_alive:
            coroutine.close()
            raise RuntimeError("the Kubernetes runtime is not running")
        return asyncio.run(coroutine)

    def carry_out(self, index: int, outcome: str) -> None:
        function, args = self.commands.pop(index)
        self.launcher.outcome = outcome
        with suppress(ConnectionFailedError):  # the real one logs it
            asyncio.run(function(*args))


class Scheduler:
    """One scheduler: its executor, and what its informer has to tell."""

    def __init__(self, world: World, job_id: int) -> None:
        self.world, self.job_id = world, job_id
        self.stream: list[PodObservation] = []
        """What the informer has to tell and has not told yet."""
        self.told: list[PodObservation] = []
        self._seen: dict[str, PodFacts] = {}
        self.runtime = Runtime(self)
        self.executor = self._start()

    def _start(self) -> Any:
        made = kubernetes_executor.KubernetesRuntime
        kubernetes_executor.KubernetesRuntime = lambda settings, emit: self.runtime  # type: ignore[misc,assignment]
        try:
            executor = kubernetes_executor.KubernetesExecutor()
            executor._clock = self.world.clock
            executor.job_id = self.job_id
            executor.start()
        finally:
            kubernetes_executor.KubernetesRuntime = made  # type: ignore[misc]
        receive = executor._tracker.receive

        def watched(message: Any) -> None:
            # The executor goes on after an error, with a line in its log. Here there should be none.
            try:
                receive(message)
            except Exception as error:
                self.world.complain(f"I5: a message was lost by {error!r}: {message}")
                raise

        executor._tracker.receive = watched  # type: ignore[method-assign]
        return executor

    @property
    def is_adopting(self) -> bool:
        """Whether it still looks for pods of a dead scheduler."""
        return bool(self.executor._adopter._postponed or self.executor._adopter._abandoned)

    def tell(self, message: Any) -> None:
        self.executor._inbox.put(message)

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
