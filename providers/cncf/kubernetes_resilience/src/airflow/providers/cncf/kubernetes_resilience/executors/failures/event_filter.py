# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
From what the Kubernetes thread says to launches that have ended.

This is the fence: a message counts only for the pod that is a task instance's current launch. Messages about
other pods lead to tidying up, and to nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures.settlement import Ended
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import SCHEDULER_LABEL
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    SILENT_EXIT,
    UNKNOWN,
    PodFailure,
    find_failure,
    find_overdue_deletion,
    find_silent_exit,
    find_unschedulable,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import LAUNCH_ID_ANNOTATION, PodFacts
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    Message,
    PodConfirmed,
    PodCreated,
    PodDeleted,
    PodDeletionAccepted,
    PodNotCreated,
    PodNotDeleted,
    PodObservation,
)

log = logging.getLogger(__name__)

UNSEEN_TIMEOUT = 60.0
"""Seconds after its creation at which a pod that the informer has not seen is asked for."""

SIDECAR_GRACE = 30.0
"""
Seconds for what runs beside a worker that has ended to end as well. A kubelet that ends a pod (an eviction,
the shutdown of its node) says so when all containers have ended: after their grace period, which is this by
default.
"""

DELETION_MARGIN = 5.0
"""Seconds after the end of its grace period at which a pod that is still there counts as stuck."""


class _Lasting(NamedTuple):
    """A state of a launch's pod that counts as its end if it lasts."""

    launch: Launch
    failure: PodFailure
    """What it is then."""
    deadline: float


class StaleEventFilter:
    """
    Follows the current launches until their pods end.

    :param own_label: value of the label by which this scheduler's pods are selected
    :param given_up_reasons: waiting reasons with which a Pending pod counts as failed
    :param unschedulable_timeout: seconds after which a pod that the scheduler has no node for counts as
        failed; 0 for never
    :param expects: tells whether a pod that is no current launch is about to become one, by adoption
    :param doubt: told of a launch whose pod carries another scheduler's label
    :param not_created: told of a launch whose create call has failed
    :param take_back: makes a launch that was given up on the current one again, and tells whether it could
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        commands: PodCommands,
        deletion: PodDeletion,
        own_label: str,
        given_up_reasons: Collection[str],
        unschedulable_timeout: float,
        expects: Callable[[PodFacts], bool],
        doubt: Callable[[Launch, PodFacts], None],
        not_created: Callable[[Launch, KubernetesApiError], None],
        take_back: Callable[[Launch], bool],
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._commands = commands
        self._deletion = deletion
        self._own_label = own_label
        self._given_up_reasons = given_up_reasons
        self._unschedulable_timeout = unschedulable_timeout
        self._expects = expects
        self._doubt = doubt
        self._on_not_created = not_created
        self._take_back = take_back
        self._clock = clock
        self._ended: dict[str, Ended] = {}
        self._lasting: dict[str, _Lasting] = {}
        self._overdue: dict[str, tuple[Launch, float]] = {}
        self._unseen: dict[str, tuple[Launch, float]] = {}
        self._early: dict[str, PodObservation] = {}
        """The last about each pod that is expected to become a launch, by its UID."""

    def receive(self, message: Message) -> None:
        """Take in one message."""
        match message:
            case PodObservation():
                self._informed(message)
            case PodCreated():
                self._created(message)
            case PodNotCreated():
                self._not_created(message)
            case PodConfirmed():
                self._confirmed(message)
            case PodDeleted():
                self._registry.left(message.ref.uid)
            case PodDeletionAccepted():
                self._deletion.accepted(message.ref, message.grace_seconds)
            case PodNotDeleted():
                self._not_deleted(message.facts)

    def follow(self, launch: Launch) -> None:
        """Take in a launch that was adopted, with what is known of its pod."""
        self._expect(launch)
        if launch.facts:
            self._observe(launch, launch.facts, gone=False)
        if launch.ref and (early := self._early.pop(launch.ref.uid, None)):
            self._informed(early)

    def misread(self, message: Message) -> None:
        """Take what is certain from a message that could not be received: that a pod has ended."""
        match message:
            case PodConfirmed(ref, None):
                launch, facts = self._registry.by_uid(ref.uid), PodFacts(ref, {}, {})
            case PodObservation(facts) | PodConfirmed(_, facts) if facts.is_terminal:
                launch = self._registry.find(facts)
            case _:
                return
        if launch and not self._has_ended(launch):
            launch.facts = facts
            failure = None if facts.phase == "Succeeded" else PodFailure(reason=UNKNOWN, facts=facts)
            self._ended[launch.launch_id] = Ended(launch, failure)

    def end(self, launch: Launch, failure: PodFailure) -> None:
        """Take in that a launch has ended of which there is no pod."""
        self._ended[launch.launch_id] = Ended(launch, failure)

    def tick(self) -> None:
        """Do what time alone brings about."""
        self._registry.prune(self._clock())
        self._release_early()
        self._find_overdue()
        self._find_lasting()
        self._ask_for_unseen()

    def ended(self) -> list[Ended]:
        """Return the current launches that have ended and are not settled yet."""
        for launch_id, ended in list(self._ended.items()):
            if not self._registry.is_current(ended.launch):  # revoked, or its next phase was handed in
                del self._ended[launch_id]
                self._deletion.supersede(ended.launch, ended.failure)
        return [ended for ended in self._ended.values() if not ended.launch.calls]

    def settled(self, launch: Launch) -> None:
        """Note that a launch that had ended is settled."""
        del self._ended[launch.launch_id]
        self._lasting.pop(launch.launch_id, None)

    def _informed(self, seen: PodObservation) -> None:
        if launch := self._registry.find(seen.facts):
            self._unseen.pop(launch.launch_id, None)  # from now on the informer notices if the pod is gone
            self._observe(launch, seen.facts, gone=seen.gone)
        elif self._expects(seen.facts):
            self._early[seen.facts.ref.uid] = seen
        else:
            self._observe_stray(seen.facts, gone=seen.gone)

    def _release_early(self) -> None:
        """Take in what was seen of pods that were expected to become launches, and did not."""
        for uid, seen in list(self._early.items()):
            if not self._expects(seen.facts):
                del self._early[uid]
                self._informed(seen)

    def _observe(self, launch: Launch, facts: PodFacts, *, gone: bool) -> None:
        if self._has_ended(launch):
            return
        if launch.facts and not facts.addresses:
            # A kubelet that evicts a pod writes its status anew, without them.
            facts = replace(facts, addresses=launch.facts.addresses)
        # Equal to what was there, and one of them is enough to keep.
        launch.facts, launch.ref, launch.name = facts, facts.ref, facts.ref.name
        if gone:
            # Deleted, or relabelled by another scheduler that took it over: the watch cannot tell them
            # apart, so ask.
            self._commands.confirm(facts.ref)
            return
        self._evaluate(launch, find_failure(facts, given_up_reasons=self._given_up_reasons))

    def _has_ended(self, launch: Launch) -> bool:
        # A clean-up that follows while the database is waited for must not pass for the cause of the end.
        ended = self._ended.get(launch.launch_id)
        if ended is None or launch.facts is None:
            return False
        return launch.facts.is_terminal or (ended.failure is not None and ended.failure.lingers)

    def _evaluate(self, launch: Launch, failure: PodFailure | None) -> None:
        facts = launch.facts
        succeeded = facts is not None and facts.phase == "Succeeded"
        lasting, seconds = self._what_has_to_last(facts, failure)
        self._note(launch, lasting, seconds)
        if failure is lasting:
            failure = None
        if failure or succeeded or launch.given_up:
            self._ended[launch.launch_id] = Ended(launch, None if succeeded else failure or launch.given_up)
            return
        self._ended.pop(launch.launch_id, None)  # the image could be pulled after all
        if facts and facts.deletion_timestamp:
            # Counted from when the deletion was seen: its time is of the API server's clock, not of ours.
            deadline = self._clock() + facts.deletion_grace_seconds + DELETION_MARGIN
            _, earlier = self._overdue.get(launch.launch_id, (launch, deadline))
            self._overdue[launch.launch_id] = (launch, min(earlier, deadline))

    def _what_has_to_last(
        self, facts: PodFacts | None, failure: PodFailure | None
    ) -> tuple[PodFailure | None, float]:
        """Return what counts as an end only if it lasts, and for how many seconds it has to."""
        if failure and failure.lingers:
            return failure, SIDECAR_GRACE
        if facts and not failure and facts.has_done_worker:
            return find_silent_exit(facts), SIDECAR_GRACE
        if facts and not failure and self._unschedulable_timeout:
            return find_unschedulable(facts), self._unschedulable_timeout
        return None, 0.0

    def _note(self, launch: Launch, failure: PodFailure | None, seconds: float) -> None:
        """Note until when it has to last; what else about the pod changes does not put that off."""
        earlier = self._lasting.pop(launch.launch_id, None)
        if failure:
            goes_on = earlier is not None and earlier.failure.lingers is failure.lingers
            deadline = earlier.deadline if earlier and goes_on else self._clock() + seconds
            self._lasting[launch.launch_id] = _Lasting(launch, failure, deadline)

    def _observe_stray(self, facts: PodFacts, *, gone: bool) -> None:
        """Tidy up after a pod that is nobody's current launch; it changes no task."""
        if gone and not facts.is_terminal and self._registry.departure(facts.ref.uid):
            self._commands.confirm(facts.ref)  # it may have been relabelled by another scheduler, and live on
        elif gone:
            self._registry.left(facts.ref.uid)
        elif facts.has_started and not facts.deletion_timestamp and self._has_survived(facts):
            return
        elif facts.is_terminal:
            self._registry.left(facts.ref.uid)
            self._deletion.tidy(facts.ref, failed=facts.phase == "Failed")
        else:
            self._deletion.created_in_vain(facts.annotations.get(LAUNCH_ID_ANNOTATION, ""), facts)
            if facts.deletion_timestamp:
                self._deletion.accepted(facts.ref, facts.deletion_grace_seconds)

    def _not_deleted(self, facts: PodFacts) -> None:
        if self._registry.by_uid(facts.ref.uid):
            self._informed(PodObservation(facts))
        elif not self._has_survived(facts):
            departure = self._registry.departure(facts.ref.uid)
            if departure and departure.unless_started:  # else it is being deleted, whatever it does
                self._registry.left(facts.ref.uid)
            self._observe_stray(facts, gone=False)

    def _has_survived(self, facts: PodFacts) -> bool:
        """
        Follow a pod again that was given up on, if nothing has taken its place; return whether it is.

        :param facts: from which it is clear that its deletion is not carried out any more
        """
        departure = self._registry.departure(facts.ref.uid)
        launch = departure.launch if departure and departure.unless_started else None
        if launch is None or not self._take_back(launch):
            return False
        self._registry.left(facts.ref.uid)
        self._observe(launch, facts, gone=False)
        return True

    def _created(self, message: PodCreated) -> None:
        launch = self._answered(message.launch_id)
        if launch is None:
            self._deletion.created_in_vain(message.launch_id, PodFacts(message.ref, {}, {}), certain=True)
        elif launch.ref is None:
            self._registry.bind(launch, message.ref)
            self._ended.pop(launch.launch_id, None)  # it was to end without a pod
            self._expect(launch)
        elif launch.ref.uid != message.ref.uid:
            # An earlier call was carried out too, without an answer, and its pod has gone: now it is this.
            self._ended.pop(launch.launch_id, None)
            self._registry.bind(launch, message.ref)
            launch.facts = None
            self._commands.confirm(message.ref)  # it may have been seen already, and taken for nobody's

    def _answered(self, launch_id: str) -> Launch | None:
        launch = self._registry.by_launch_id(launch_id)
        if launch:
            launch.calls = max(0, launch.calls - 1)
        return launch

    def _expect(self, launch: Launch) -> None:
        self._unseen[launch.launch_id] = (launch, self._clock() + UNSEEN_TIMEOUT)

    def _not_created(self, message: PodNotCreated) -> None:
        launch = self._answered(message.launch_id)
        if launch is None:
            self._deletion.not_created(message.launch_id, message.error)
        elif launch.ref is None:  # else its pod was seen, whatever became of the call
            self._on_not_created(launch, message.error)

    def _confirmed(self, message: PodConfirmed) -> None:
        launch = self._registry.by_uid(message.ref.uid)
        if launch is None:
            if message.facts is None or message.facts.is_terminal:
                self._registry.left(message.ref.uid)
            return
        if self._has_ended(launch):
            return
        if message.facts is None:
            last = launch.facts = launch.facts or PodFacts(message.ref, {}, {})
            self._evaluate(launch, find_failure(last, gone=True))
            return
        if message.facts.labels.get(SCHEDULER_LABEL) != self._own_label:
            self._doubt(launch, message.facts)
            return
        self._observe(launch, message.facts, gone=False)

    def labelled_again(self, launch: Launch, pod: PodFacts) -> None:
        """Take in a launch whose pod gets this scheduler's label again, with what is known of it."""
        self._expect(launch)
        self._observe(launch, pod, gone=False)

    def _find_lasting(self) -> None:
        now = self._clock()
        for launch_id, (launch, failure, deadline) in list(self._lasting.items()):
            if not self._registry.is_current(launch):
                del self._lasting[launch_id]
            elif deadline <= now:
                # Whether a worker that has ended well has failed is told by the task instance alone.
                is_done = failure.reason == SILENT_EXIT
                self._ended.setdefault(launch_id, Ended(launch, None if is_done else failure))

    def _find_overdue(self) -> None:
        now = self._clock()
        for launch_id, (launch, deadline) in list(self._overdue.items()):
            if not self._registry.is_current(launch) or launch_id in self._ended:
                del self._overdue[launch_id]
            elif deadline <= now and launch.facts:
                del self._overdue[launch_id]
                self._ended[launch_id] = Ended(launch, find_overdue_deletion(launch.facts))

    def _ask_for_unseen(self) -> None:
        # A pod that was deleted before the informer had ever seen it is missing in none of its lists.
        now = self._clock()
        for launch_id, (launch, deadline) in list(self._unseen.items()):
            if launch.ref is None or not self._registry.is_current(launch):
                del self._unseen[launch_id]
            elif deadline <= now:
                del self._unseen[launch_id]
                self._commands.confirm(launch.ref)
