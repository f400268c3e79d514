# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Which pod is the current launch of which task instance.

Only the scheduler's thread touches the registry. Events of pods that are not in it change no task.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Command, Departure, Launch
from airflow.providers.cncf.kubernetes_resilience.pods.facts import LAUNCH_ID_ANNOTATION, PodFacts, PodRef


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
