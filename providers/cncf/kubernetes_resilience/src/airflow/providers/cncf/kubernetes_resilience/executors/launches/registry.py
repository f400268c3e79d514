# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Keeps the state of each launch. Nothing else changes it.

A task instance has one current launch at most, in any state but *departing*, and any number of superseded
ones that depart. Only the scheduler's thread uses the registry. Questions change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    ALLOWED,
    NO_DEADLINES,
    Creation,
    Deletion,
    Launch,
    LaunchState,
    Waiting,
)
from airflow.providers.cncf.kubernetes_resilience.executors.masking import describe
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import LAUNCH_ID_ANNOTATION, PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Command
from airflow_resilience.outages import Dependency


class IllegalTransitionError(Exception):
    """A launch cannot go from the state in which it is to the one that was asked for, or is not current."""


class LaunchRegistry:
    """The launches of an executor by state, and the task instances whose adoption is not complete."""

    def __init__(self) -> None:
        self._current: dict[TaskInstanceKey, Launch] = {}
        self._current_by: dict[str, Launch] = {}
        """By launch id, and by the pod's UID."""
        self._by_state: dict[LaunchState, dict[str, Launch]] = {state: {} for state in LaunchState}
        self._held: Counter[Dependency] = Counter()
        self._unsettled: dict[str, Launch] = {}
        self._relabelled: dict[Launch, PodFacts] = {}
        self._departing: dict[TaskInstanceKey, list[Launch]] = {}
        self._departing_by: dict[str, Launch] = {}
        """The same of the superseded ones."""
        self._adopting: dict[TaskInstanceKey, Orphan] = {}
        self.created = 0
        """Number of pods that were created so far."""

    # ------------------------------------------------------------------ questions

    def __iter__(self) -> Iterator[Launch]:
        return iter(self._current.values())

    def get(self, key: TaskInstanceKey) -> Launch | None:
        """Return the current launch of a task instance."""
        return self._current.get(key)

    def is_current(self, launch: Launch) -> bool:
        """Return whether nothing has superseded or released the launch."""
        return self._current.get(launch.key) is launch

    def find(self, pod: PodFacts) -> Launch | None:
        """
        Return the current launch that a pod belongs to.

        An event may arrive before the answer to the create call: the launch has no UID yet, and the pod is
        recognised by its launch id.
        """
        return _find(self._current_by, pod)

    def current(self, token: str) -> Launch | None:
        """Return the current launch that has a launch id, or whose pod has a UID."""
        return self._current_by.get(token)

    def count(self, state: LaunchState) -> int:
        """Return how many launches are in a state."""
        return len(self._by_state[state])

    def in_state(self, state: LaunchState) -> list[Launch]:
        """Return the launches that are in a state, in the order in which they have come to it."""
        return list(self._by_state[state].values())

    def count_held(self, dependency: Dependency) -> int:
        """Return how many launches are held for a dependency."""
        return self._held[dependency]

    def starting(self) -> list[Launch]:
        """Return the current launches that were asked for and have not been seen to start."""
        ended = (launch for launch in self.in_state(LaunchState.ENDED) if not launch.has_started)
        return [*self.in_state(LaunchState.CREATING), *self.in_state(LaunchState.PENDING), *ended]

    def describe(self, now: float) -> Iterator[str]:
        """Say where each task is that the executor holds, for people."""
        for orphan in self._adopting.values():
            yield f"{orphan.key}: adopting from scheduler job {orphan.job_id}"
        for state in LaunchState:
            for launch in self._by_state[state].values():
                try:
                    known = launch.describe(now)
                except Exception as error:  # noqa: BLE001 - a signal handler asks, and the scheduler would end
                    known = f"cannot be described: {describe(error)}"
                yield f"{launch.key}: {state}; {known}"

    # ------------------------------------------------------------------ the states

    def make_current(self, launch: Launch) -> None:
        """Make this the current launch; one that was there before is released."""
        self.release(launch.key)
        self._forget(launch)
        self._take_over(launch)
        self._current[launch.key] = self._current_by[launch.launch_id] = launch
        if launch.ref:
            self._current_by[launch.ref.uid] = launch
        self._move(launch, LaunchState.WAITING if launch.waiting else _state_of_pod(launch))

    def suspend(self, launch: Launch, dependency: Dependency, now: float) -> None:
        """
        Note that a waiting launch, or a launch without a pod for certain, is held.

        :param dependency: unavailable dependency
        """
        self._check(launch)
        launch.held_for, launch.held_since = dependency, launch.held_since or now
        if launch.workload and launch.creation:
            job = launch.workload.job(launch.key, launch.ti_id)
            launch.waiting = Waiting(job, is_relaunch=True, previous_name=launch.name)
            launch.creation, launch.token_made_at = None, 0.0
        self._move(launch, LaunchState.HELD)

    def unsuspend(self, launch: Launch) -> None:
        """Note that a launch is held no more."""
        self._check(launch)
        if launch.waiting:
            launch.waiting.resumed_for = launch.held_for
        self._move(launch, LaunchState.WAITING)

    def create(self, launch: Launch, creation: Creation) -> None:
        """Note that the pod of a launch which has waited is asked for."""
        self._check(launch)
        launch.waiting, launch.creation = None, creation
        self._move(launch, LaunchState.CREATING)

    def bind(self, launch: Launch, ref: PodRef) -> None:
        """Note the identity of the pod that was created for a launch, in place of an earlier one."""
        self._check(launch)
        self._forget(launch)
        if launch.ref:
            launch.facts, launch.is_gone, launch.deadlines = None, False, NO_DEADLINES
        launch.creation = None
        self.created += 1
        self._refer(launch, ref)
        self._move(launch, _state_of_pod(launch))

    def see(self, launch: Launch, pod: PodFacts) -> None:
        """Note what was seen of a launch's pod."""
        self._check(launch)
        launch.facts, launch.name = pod, pod.ref.name
        self._refer(launch, pod.ref)
        if launch.state is not LaunchState.ENDED:
            self._move(launch, _state_of_pod(launch))

    def end(self, launch: Launch, failure: PodFailure | None, now: float) -> None:
        """
        Note that a current launch has ended, and has to be settled.

        :param failure: how it failed; None if it succeeded
        """
        self._check(launch)
        was_alive = launch.failure is not None and launch.failure.alive
        if launch.state is not LaunchState.ENDED or (was_alive and not (failure and failure.alive)):
            launch.ended_at = now
        launch.failure = failure
        self._move(launch, LaunchState.ENDED)

    def resume(self, launch: Launch) -> None:
        """Note that a current launch has not ended after all."""
        self._check(launch)
        self._move(launch, _state_of_pod(launch))

    def settled(self, launch: Launch) -> None:
        """Note that the end of a launch, or its silence, is settled; one that is current still goes on."""
        self._unsettled.pop(launch.launch_id, None)
        launch.is_silent = False
        if launch.state is LaunchState.ENDED and self.is_current(launch):
            self.resume(launch)

    def note_relabelled(self, launch: Launch, pod: PodFacts) -> None:
        """Note that the pod of a current launch has the label of another scheduler."""
        self._check(launch)
        self._relabelled[launch] = pod

    def relabelled(self) -> list[Launch]:
        """Return the current launches whose pods have the label of another scheduler."""
        return list(self._relabelled)

    def take_relabelled(self, launch: Launch) -> PodFacts:
        """Note that the pod of a launch gets its label again; return the pod as it was seen without."""
        return self._relabelled.pop(launch)

    def release(self, key: TaskInstanceKey) -> Launch | None:
        """Release the current launch of a task instance, and return it."""
        launch = self._current.pop(key, None)
        if launch:
            self._relabelled.pop(launch, None)
            del self._current_by[launch.launch_id]
            if launch.ref:
                self._current_by.pop(launch.ref.uid, None)
            if launch.state is LaunchState.ENDED or (launch.facts and launch.facts.lingers):
                self._unsettled[launch.launch_id] = launch
            self._move(launch, LaunchState.DEPARTING if launch.deletion else None)
        return launch

    def unsettled(self) -> list[Launch]:
        """Return the launches that were released after the end of their worker, and before its settlement."""
        return list(self._unsettled.values())

    def found(self, launch: Launch, ref: PodRef) -> None:
        """
        Note the pod of a superseded launch, which departs for its create call no longer.

        A repeated call may make a second pod, which is deleted as the pod of no launch.
        """
        if launch.ref is None:
            was_seen = launch.deletion is not None and launch.deletion.seen == ref
            launch.confirm_at = None if was_seen else inf
        self._forget(launch)
        launch.ref, launch.creation, launch.calls = ref, None, 0

    def take_back(self, launch: Launch, ref: PodRef) -> None:
        """Make a superseded launch, whose pod has started, the current one again."""
        self.found(launch, ref)
        launch.given_up, launch.has_survived = None, True
        self.make_current(launch)

    def _check(self, launch: Launch) -> None:
        # A released launch does not come back by itself: another launch may have taken its place.
        if not self.is_current(launch):
            raise IllegalTransitionError(f"{launch.key}: launch {launch.launch_id} is not the current one")

    def _refer(self, launch: Launch, ref: PodRef) -> None:
        # Also if the references are equal: the informer has this one, and one copy is enough to keep.
        if launch.ref is ref:
            return
        if launch.ref:
            self._current_by.pop(launch.ref.uid, None)
        launch.ref = ref
        self._current_by[ref.uid] = launch

    def _move(self, launch: Launch, state: LaunchState | None) -> None:
        if launch.state is state:
            return
        if state not in ALLOWED[launch.state]:
            raise IllegalTransitionError(f"{launch.key}: from {launch.state} to {state}")
        if launch.state:
            del self._by_state[launch.state][launch.launch_id]
        if launch.held_for and launch.state is LaunchState.HELD:
            self._held[launch.held_for] -= 1
            self._held += Counter()  # forgets what nothing is held for any more
        launch.state = state
        if state:
            self._by_state[state][launch.launch_id] = launch
        if launch.held_for and state is LaunchState.HELD:
            self._held[launch.held_for] += 1

    # ------------------------------------------------------------------ superseded pods

    def supersede(self, launch: Launch, deletion: Deletion) -> None:
        """
        Note that a launch is superseded, and how its pod goes; the next launch of its key waits for that.

        The current launch departs when it is released.
        """
        self.gone(launch.launch_id)
        self._take_over(launch)
        self._departing.setdefault(launch.key, []).append(launch)
        launch.deletion = deletion
        for token in _tokens(launch):
            self._departing_by[token] = launch
        if not self.is_current(launch):
            self._move(launch, LaunchState.DEPARTING)

    def gone(self, *tokens: str) -> None:
        """Note that the pods of superseded launches are waited for no longer, by launch id or by UID."""
        for token in tokens:
            if launch := self._departing_by.get(token):
                self._forget(launch)

    def postpone(self, until: float) -> None:
        """Have pods waited for until then at least whose deletion the API server has not accepted."""
        for launch in self._departing_by.values():
            if launch.deletion and not launch.deletion.is_accepted:
                launch.deletion.deadline = max(launch.deletion.deadline, until)

    def prune(self, now: float) -> None:
        """Forget what is waited for no longer."""
        for key in list(self._departing):
            for launch in self.departing_of(key):
                if launch.deletion and launch.deletion.is_over(now):
                    self._forget(launch)

    def departing(self, token: str) -> Launch | None:
        """Return the superseded launch that has a launch id, or whose pod has a UID."""
        return self._departing_by.get(token)

    def find_departing(self, pod: PodFacts) -> Launch | None:
        """Return the superseded launch that a pod belongs to."""
        return _find(self._departing_by, pod)

    def departing_of(self, key: TaskInstanceKey) -> list[Launch]:
        """Return the superseded launches of a task instance whose pods are waited for."""
        return list(self._departing.get(key, ()))

    def deletions(self, key: TaskInstanceKey) -> list[Deletion]:
        """Return those of the superseded launches of a task instance."""
        return [launch.deletion for launch in self._departing.get(key, ()) if launch.deletion]

    def pending_deletions(self) -> list[Command]:
        """Return the commands that have superseded pods deleted and are not known to be carried out."""
        return [
            deletion.command
            for key in self._departing
            for deletion in self.deletions(key)
            if deletion.command and not deletion.is_accepted
        ]

    def is_clear(self, key: TaskInstanceKey, now: float) -> bool:
        """Return whether no superseded pod of the key has to be waited for."""
        return all(deletion.is_over(now) for deletion in self.deletions(key))

    def is_stopped(self, key: TaskInstanceKey, now: float) -> bool:
        """Return whether no superseded pod of the key can start any more, or is waited for no longer."""
        return all(deletion.is_accepted or deletion.is_over(now) for deletion in self.deletions(key))

    def _take_over(self, launch: Launch) -> None:
        """Forget the superseded launch whose pod is this launch's now."""
        pod = launch.facts or (PodFacts(launch.ref, {}, {}) if launch.ref else None)
        if pod and (other := self.find_departing(pod)):
            self._forget(other)

    def _forget(self, launch: Launch) -> None:
        """Forget that a launch departs."""
        if launch.deletion is None:
            return
        for token in _tokens(launch):
            self._departing_by.pop(token, None)
        launch.deletion = None
        others = self._departing[launch.key]
        others.remove(launch)
        if not others:
            del self._departing[launch.key]
        if launch.state is LaunchState.DEPARTING:
            self._move(launch, None)

    # ------------------------------------------------------------------ adoption

    def adopt(self, orphans: Iterable[Orphan]) -> None:
        """Note task instances whose adoption begins: their pods are to be found."""
        self._adopting.update((orphan.key, orphan) for orphan in orphans)

    def end_adoption(self, key: TaskInstanceKey) -> Orphan | None:
        """Note that the adoption of a task instance is complete or cancelled; return what was noted."""
        return self._adopting.pop(key, None)

    def adopting(self) -> dict[TaskInstanceKey, Orphan]:
        """
        Return the task instances whose adoption is not complete.

        Beside that they may have a current launch: that of an earlier phase, whose pod has not ended yet.
        """
        return dict(self._adopting)

    def adopting_of(self, key: TaskInstanceKey | None) -> Orphan | None:
        """Return the task instance with that key, if its adoption is not complete."""
        return None if key is None else self._adopting.get(key)


def _find(launches: Mapping[str, Launch], pod: PodFacts) -> Launch | None:
    if launch := launches.get(pod.ref.uid):
        return launch
    launch = launches.get(pod.annotations.get(LAUNCH_ID_ANNOTATION, ""))
    return launch if launch and launch.ref is None else None  # else it is a copy of the pod


def _tokens(launch: Launch) -> set[str]:
    """Return the identities by which messages about a superseded launch refer to it."""
    seen = launch.deletion.seen if launch.deletion else None
    return {launch.launch_id, *(ref.uid for ref in (launch.ref, seen) if ref)}


def _state_of_pod(launch: Launch) -> LaunchState:
    if launch.ref is None:
        return LaunchState.CREATING
    return LaunchState.STARTED if launch.has_started else LaunchState.PENDING
