# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Finds the launches that have ended, by the messages of the Kubernetes thread and by their deadlines.

A message ends a launch only if it is about the pod that is a task instance's current launch. What follows
from a message about another pod is up to :mod:`.superseded_pods`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

from airflow.models.taskinstancekey import TaskInstanceKey
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.outages import Outages
from airflow.providers.cncf.kubernetes_resilience.executors.creation.suspect_nodes import SuspectNodes
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import (
    Limits,
    find_end,
    note_deadlines,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import (
    PodUpdate,
    SupersededPods,
)
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan, task_key
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.masking import mask, mask_reason, mask_secrets
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import UNKNOWN, PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    SCHEDULER_LABEL,
    PodFacts,
    PodRef,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    AdoptPod,
    ConfirmPod,
    Message,
    PodConfirmed,
    PodCreated,
    PodDeletionAccepted,
    PodNotConfirmed,
    PodNotCreated,
    PodNotDeleted,
    PodObservation,
)

log = logging.getLogger(__name__)

UNSEEN_TIMEOUT = 60.0
"""Seconds after its creation, and between two answers, at which the API server is asked about a pod that no
informer sees."""


@define(kw_only=True, eq=False, repr=False, slots=False)
class StaleEventFilter:
    """Follows the current launches until their pods end."""

    _registry: LaunchRegistry
    _commands: PodCommands
    _deletion: PodDeletion
    _limits: Limits
    """For how long a pod may wait for a node, or for its worker to start."""
    _superseded: SupersededPods
    """Handles messages about other pods."""
    _create_retries: CreateRetries
    """Takes create calls that have failed."""
    _outages: Outages
    """Learn of created and of started pods."""
    _suspect_nodes: SuspectNodes
    """Learn of started pods."""
    _isolation: Isolation
    _clock: Callable[[], float]
    _due: dict[Launch, float] = field(factory=dict, init=False)
    """When the next deadline of a launch is."""
    _early: dict[str, tuple[TaskInstanceKey, Message]] = field(factory=dict, init=False)
    """
    Messages that wait for an adoption, each with its task instance: the last observation of each pod that may
    be adopted, by UID, and the pods of cancelled creations, by launch id.
    """

    def receive(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case PodObservation():
                self._informed(message)
            case PodCreated():
                self._created(message)
            case PodNotCreated():
                self._not_created(message)
            case PodConfirmed():
                self._ask_again(message.ref)
                self._confirmed(message)
            case PodNotConfirmed():
                self._ask_again(message.ref)
            case PodDeletionAccepted():
                self._deletion.accepted(message.ref, message.grace_seconds)
            case PodNotDeleted(facts) if self._registry.current(facts.ref.uid):
                self._informed(PodObservation(facts))
            case PodNotDeleted(facts):
                self.note_update(PodUpdate.NOT_DELETED, facts)

    def follow(self, launch: Launch, pod: PodFacts) -> None:
        """Have the pod of a launch get this scheduler's label, by which it is watched, and follow it."""
        self._commands.send(AdoptPod(pod.ref))
        self._expect(launch)
        self._observe(launch, pod, gone=False)

    def follow_adopted(self, launch: Launch, pod: PodFacts) -> None:
        """Follow an adopted launch. If following fails, the end of its pod may still be certain."""
        if not self._isolation.attempt("adopt", launch.key, self.follow, launch, pod):
            self._isolation.run("adopt", self.misread, PodObservation(pod))

    def note_update(self, update: PodUpdate, pod: PodFacts) -> None:
        """Handle a message about a pod without a current launch."""
        launch = self._superseded.note_update(update, pod)
        if launch is None:
            return
        if pod.labels.get(SCHEDULER_LABEL) != self._commands.own_label:
            self.follow(launch, pod)
            return
        if update is PodUpdate.SEEN:
            launch.confirm_at = None  # from now on the informer notices if the pod is gone
        elif launch.confirm_at is not None:
            self._expect(launch)
        self._observe(launch, pod, gone=False)

    def released(self) -> Iterator[Message]:
        """Return, each once, the messages that have waited for an adoption, which is over by now."""
        for name, (key, message) in list(self._early.items()):
            if not self._registry.adopting_of(key):
                del self._early[name]
                yield message

    def hold_lost(self, orphan: Orphan) -> None:
        """Hold an adopted task instance that has lost its pod while its task was running."""
        facts = PodFacts(PodRef("", orphan.hostname or "", ""), {}, {}, phase="Running")
        launch = Launch(orphan.key, orphan.ti_id, name=facts.ref.name, facts=facts, is_gone=True)
        self._registry.make_current(launch)
        self._due[launch] = 0.0
        self._evaluate_alone(launch)

    def note_heartbeat_timeout(self, launch: Launch) -> None:
        """
        Note the heartbeat timeout of a current launch's worker.

        An informer that has not seen the pod yet would not notice its end, so the API server is asked first.
        Airflow guesses again, and by then the answer is known.
        """
        if launch.confirm_at is not None and not launch.was_asked:
            self._expect(launch, 0.0)
        elif launch.facts and launch.state is not LaunchState.ENDED:
            launch.is_silent = True
            try:
                self._evaluate(launch)
            except Exception:
                launch.is_silent = False  # Airflow handles the guess, which must not count again later
                raise

    def misread(self, message: Message) -> None:
        """Use the certain fact in a message that could not be handled: the end of a pod."""
        match message:
            case PodConfirmed(ref, None):
                launch, facts = self._registry.current(ref.uid), PodFacts(ref, {}, {})
            case PodObservation(facts) | PodConfirmed(_, facts) if facts.is_terminal:
                launch = self._recognise(facts)
            case _:
                return
        if launch and not self._has_ended(launch):
            launch.facts = facts = mask_secrets(facts)
            failure = None if facts.phase == "Succeeded" else PodFailure(reason=UNKNOWN, facts=facts)
            self._registry.end(launch, failure, self._clock())

    def tick(self) -> None:
        """Do what is due, without any message."""
        self._deletion.prune()
        for launch in self._registry.unsettled():  # revoked, or its next phase was handed in
            self._isolation.alone(
                "retire",
                launch,
                self._retire,
                name=_id,
                give_up=lambda launch, _: self._registry.settled(launch),
            )
        self._look_at_due()

    def _recognise(self, pod: PodFacts) -> Launch | None:
        """Return the current launch that the pod belongs to, and bind the pod to it."""
        launch = self._registry.find(pod)
        if launch and launch.ref is None:
            self._bind(launch, pod.ref)
        return launch

    def _bind(self, launch: Launch, ref: PodRef) -> None:
        self._registry.bind(launch, ref)
        self._outages.created(launch)

    def _informed(self, seen: PodObservation) -> None:
        if launch := self._recognise(seen.facts):
            launch.confirm_at = None  # from now on the informer notices if the pod is gone
            self._observe(launch, seen.facts, gone=seen.gone)
        elif (key := task_key(seen.facts.annotations)) and self._registry.adopting_of(key):
            self._early[seen.facts.ref.uid] = (key, seen)
        else:
            self.note_update(PodUpdate.UNSEEN if seen.gone else PodUpdate.SEEN, seen.facts)

    def _retire(self, launch: Launch) -> None:
        if launch.facts and launch.facts.lingers:
            self.note_update(PodUpdate.SEEN, launch.facts)  # nothing new may ever be seen of it
        else:
            self._deletion.supersede(launch, launch.failure)
        self._registry.settled(launch)

    def _observe(self, launch: Launch, facts: PodFacts, *, gone: bool) -> None:
        if self._has_ended(launch):
            return
        facts = mask_secrets(facts)
        if launch.facts and not facts.addresses:
            # A kubelet that evicts a pod writes its status anew, without them.
            facts = replace(
                facts,
                addresses=launch.facts.addresses,
                scheduled=facts.scheduled or launch.facts.scheduled,
                started=facts.started or launch.facts.started,
            )
        self._outages.observed(launch, facts)
        self._suspect_nodes.observed(launch, facts)
        self._registry.see(launch, facts)
        if gone:
            # Deleted, or relabelled by another scheduler that took it over: the watch cannot tell them
            # apart, so ask.
            self._ask(launch, facts.ref)
            return
        self._evaluate(launch)

    def _has_ended(self, launch: Launch) -> bool:
        # The pod may be deleted while we wait for the database. This deletion is not the cause of its end.
        if launch.state is not LaunchState.ENDED or launch.facts is None:
            return False
        return launch.facts.is_terminal or (launch.failure is not None and launch.failure.lingers)

    def _evaluate(self, launch: Launch) -> None:
        now = self._clock()
        note_deadlines(launch, now, self._limits, is_away=self._commands.is_away)
        if end := find_end(launch, now, self._limits):
            self._registry.end(launch, end.failure, now)
        elif launch.state is LaunchState.ENDED:
            self._registry.resume(launch)  # the image could be pulled after all
        ahead = [deadline for deadline in launch.deadlines.values() if deadline > now]
        self._due[launch] = min(ahead, default=inf)

    def _evaluate_alone(self, launch: Launch) -> None:
        self._isolation.alone("track", launch, self._evaluate, name=_id, give_up=self._give_up)

    def _created(self, message: PodCreated) -> None:
        launch, ref = self._answered(message.launch_id), message.facts.ref
        if launch is None:
            self._created_in_vain(message)
        elif launch.ref is None:
            self._bind(launch, ref)
            self._expect(launch)
        elif launch.ref.uid != ref.uid:
            # An earlier call had no answer and was carried out too. Its pod has gone, and this one counts.
            self._bind(launch, ref)
            self._commands.send(ConfirmPod(ref))  # it may have been seen already, as that of no launch

    def _created_in_vain(self, message: PodCreated) -> None:
        """Handle a pod of a forgotten launch, unless it was adopted since."""
        launch_id, pod = message.launch_id, message.facts
        launch = self._registry.departing(launch_id)
        key = launch.key if launch else task_key(pod.annotations)
        if self._registry.current(pod.ref.uid):
            self._registry.gone(launch_id, pod.ref.uid)
        elif key and self._registry.adopting_of(key):
            self._early[launch_id] = (key, message)
        else:
            self.note_update(PodUpdate.CREATED, pod)

    def _answered(self, launch_id: str) -> Launch | None:
        launch = self._registry.current(launch_id)
        if launch:
            launch.calls = max(0, launch.calls - 1)
        return launch

    def _expect(self, launch: Launch, seconds: float = UNSEEN_TIMEOUT, *, was_asked: bool = False) -> None:
        """Ask about a pod after that time, unless an informer sees it."""
        launch.confirm_at, launch.was_asked = self._clock() + seconds, was_asked
        self._due.setdefault(launch, inf)

    def _ask(self, launch: Launch, ref: PodRef) -> None:
        self._expect(launch, inf, was_asked=True)
        self._commands.send(ConfirmPod(ref))

    def _ask_again(self, ref: PodRef) -> None:
        """Note that there is an answer about a pod."""
        launch = self._registry.current(ref.uid)
        if launch and launch.confirm_at is not None:
            self._expect(launch, was_asked=True)

    def _not_created(self, message: PodNotCreated) -> None:
        launch = self._answered(message.launch_id)
        if launch is None:
            self._deletion.not_created(message.launch_id, message.error)
        elif launch.ref is None:  # else its pod was seen, whatever became of the call
            error = message.error
            error.message = mask(error.message)  # it may quote the pod
            error.reason = mask_reason(error.reason)  # a webhook says there what it likes
            self._create_retries.failed(launch, error)

    def _confirmed(self, message: PodConfirmed) -> None:
        launch = self._registry.current(message.ref.uid)
        if message.facts is None or message.facts.is_terminal:
            self._deletion.gone(message.ref.uid)
        if launch is None or self._has_ended(launch):
            return
        if message.facts is None:
            launch.facts, launch.is_gone = launch.facts or PodFacts(message.ref, {}, {}), True
            self._evaluate(launch)
            return
        if message.facts.labels.get(SCHEDULER_LABEL) != self._commands.own_label:
            self._registry.note_relabelled(launch, message.facts)
            return
        self._observe(launch, message.facts, gone=False)

    def label_again(self, launch: Launch) -> None:
        """Have the pod of a launch get this scheduler's label again, and follow it."""
        pod = self._registry.take_relabelled(launch)
        log.info("Pod %s carries another scheduler's label; %s is still ours", launch.ref, launch.key)
        self.follow(launch, pod)

    def _look_at_due(self) -> None:
        now, is_away = self._clock(), self._commands.is_away
        for launch, due in list(self._due.items()):
            is_over = not self._registry.is_current(launch) or self._has_ended(launch)
            if is_over or (due == inf and launch.confirm_at is None):
                del self._due[launch]
                continue
            # A pod that was deleted before the informer had ever seen it is missing in none of its lists, and
            # one in a namespace that is not watched is in none of them.
            if launch.ref and launch.confirm_at is not None and launch.confirm_at <= now:
                self._ask(launch, launch.ref)
            # While the API server is away, each pod that does not start has its time anew.
            if due <= now or (is_away and due < inf):
                self._evaluate_alone(launch)

    def _give_up(self, launch: Launch, _: Exception) -> None:
        facts = launch.facts or PodFacts(launch.ref or PodRef("", launch.name, ""), {}, {})
        failure = PodFailure(reason=UNKNOWN, facts=facts, alive=not launch.is_gone)
        self._registry.end(launch, failure, self._clock())
        self._due.pop(launch, None)


def _id(launch: Launch) -> str:
    return launch.launch_id
