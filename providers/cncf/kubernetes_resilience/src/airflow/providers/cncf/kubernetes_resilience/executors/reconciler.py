# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of launches that have not ended, all at once, and has done what follows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.actions import Actions
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import has_expired_token
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.judge import Situation, Step, judge
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskSnapshot

log = logging.getLogger(__name__)

CHECK_INTERVAL = 10.0
"""Seconds between two looks at launches that have not started."""

CHECK_BATCH = 500
"""Launches that are looked at in one turn of the scheduler's loop; the others in the next."""


class Asked(NamedTuple):
    """A launch whose task instance's row is read."""

    launch: Launch
    situation: Situation


class Reconciler:
    """
    Reconciles launches that have not ended with the rows of their task instances.

    :param commands: say whether the API server answers
    :param create_retries: repeat create calls
    :param event_filter: follows what gets its label again
    :param token_validity: of a worker's token, seconds
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        commands: PodCommands,
        actions: Actions,
        create_retries: CreateRetries,
        event_filter: StaleEventFilter,
        isolation: Isolation,
        token_validity: float,
        job_id: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._commands = commands
        self._actions = actions
        self._create_retries = create_retries
        self._event_filter = event_filter
        self._isolation = isolation
        self._token_validity = token_validity
        self._job_id = job_id
        self._clock = clock
        self._next_look = 0.0
        self._last_away: float | None = None
        """When the API server was away last; None if it was back at the last look."""
        self._unchecked: list[Launch] = []
        """What is left to look at of the launches that had not started at the last look."""

    def tick(self) -> None:
        """
        Read the rows that say what follows, and have that done.

        :raises DatabaseAwayError: if the database does not answer; everything is asked again then
        """
        read = self._isolation.batch("look-up", self._ask(), self._read, name=_id, give_up=self._give_up)

        def go_on(item: tuple[Asked, TaskSnapshot]) -> None:
            asked, task = item
            step = judge(asked.situation, asked.launch, task, job_id=self._job_id)
            log.debug("%s: %s, %s: %s", asked.launch.key, asked.situation.name, task, step.name)
            self._act(step, asked.launch, task)

        for item in read:
            self._isolation.alone(
                "reconcile",
                item,
                go_on,
                name=lambda item: _id(item[0]),
                give_up=lambda item, error: self._give_up(item[0], error),
            )
        del self._unchecked[:CHECK_BATCH]

    def _ask(self) -> list[Asked]:
        """Return the launches whose situation raises a question, each once."""
        now = self._clock()
        found = dict.fromkeys(self._registry.relabelled(), Situation.RELABELLED)
        for launch in self._registry.in_state(LaunchState.CREATING):
            if launch.creation and (attempt := launch.creation.next_attempt) and attempt.not_before <= now:
                found.setdefault(launch, Situation.CREATION_DUE)
        for launch in self._look_round(now):
            has_expired = self._has_expired(launch, now)
            found.setdefault(launch, Situation.TOKEN_EXPIRED if has_expired else Situation.UNCHECKED)
        return [Asked(launch, situation) for launch, situation in found.items()]

    def _look_round(self, now: float) -> list[Launch]:
        """Return launches that have not started, each after :data:`CHECK_INTERVAL`."""
        if self._commands.is_away:
            self._last_away = now
        elif self._last_away is not None:
            # What has happened in the outage is learned first.
            self._unchecked, self._next_look = [], self._last_away + CHECK_INTERVAL
            self._last_away = None
        if not self._unchecked and self._next_look <= now:
            self._next_look = now + CHECK_INTERVAL
            waiting = self._registry.in_state(LaunchState.WAITING)
            self._unchecked = [
                *self._registry.in_state(LaunchState.PENDING),
                # A new launch is looked at when it is due.
                *(launch for launch in waiting if launch.waiting and launch.waiting.is_relaunch),
                *self._registry.in_state(LaunchState.HELD),
            ]
        batch = self._unchecked[:CHECK_BATCH]
        return [launch for launch in batch if self._registry.is_current(launch) and _is_unstarted(launch)]

    def _has_expired(self, launch: Launch, now: float) -> bool:
        """Whether a pod that an outage may have kept from starting has outlived its worker's token."""
        return (
            launch.was_held
            and launch.facts is not None
            and not self._commands.is_away
            # What is being adopted may have been replaced by another scheduler.
            and not self._registry.adopting_of(launch.key)
            and has_expired_token(launch, now, self._token_validity)
        )

    def _read(self, asked: Sequence[Asked]) -> list[tuple[Asked, TaskSnapshot]]:
        ti_ids = {item.launch.key: item.launch.ti_id for item in asked}
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots(ti_ids, session=session)
        return [(item, tasks[item.launch.key]) for item in asked]

    def _act(self, step: Step, launch: Launch, task: TaskSnapshot) -> None:
        match step:
            case Step.RELEASE:
                self._actions.leave(launch, task.owner)
            case Step.CANCEL:
                self._actions.cancel(launch)
            case Step.FOLLOW:
                self._actions.cancel(launch)
                self._actions.follow([launch.key])
            case Step.REPLACE:
                self._actions.replace(launch)
            case Step.RELABEL:
                self._event_filter.label_again(launch)
            case Step.CREATE:
                self._create_retries.ask(launch)
            case Step.CREATE_LATER:
                self._create_retries.repeat_later(launch)
            case Step.FAIL:
                self._create_retries.end(launch)

    def _give_up(self, asked: Asked, error: Exception) -> None:
        match asked.situation:
            case Situation.CREATION_DUE:
                self._actions.give_up(asked.launch, error)
            case Situation.RELABELLED:
                self._actions.leave(asked.launch, None)
            case Situation.UNCHECKED | Situation.TOKEN_EXPIRED:
                pass  # it is looked at again


def _is_unstarted(launch: Launch) -> bool:
    return launch.state in (LaunchState.WAITING, LaunchState.HELD, LaunchState.PENDING)


def _id(asked: Asked) -> str:
    return asked.launch.launch_id
