# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
From a job to a create call: waiting, and building the pod.

Everything here runs in the scheduler's thread; the calls themselves are made elsewhere and answered
through the executor's inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.exceptions import PodMutationHookException, PodReconciliationError
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import (
    CreateRetries,
    is_wanted,
)
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, WaitingLaunch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import TaskInstanceRow
from airflow_resilience import ledger
from airflow_resilience.decision import Action
from airflow_resilience.ledger import LaunchHistory, LedgerEntry

log = logging.getLogger(__name__)


BUILD_BUDGET = 0.2
"""Seconds that a turn of the scheduler's loop may spend on building pods, some 400 of them."""

PUBLISH_BATCH = 500
"""Launches that are read from the database at once. More than are built in a turn would be read in vain."""


class _Read(NamedTuple):
    """What the database says about a launch that is due."""

    item: WaitingLaunch
    row: TaskInstanceRow | None
    history: LaunchHistory


class LaunchQueue:
    """
    Creates the pods of launches.

    :param factory: builds pods
    :param registry: where launches are held from the moment that their creation is asked for
    :param creations: sees to it that they are created
    :param fail: reports a task instance as failed, with the reason
    :param drop: gives back the slot of a task instance that is not to be launched any more
    :param give_up: ends a task instance, by key and UUID, that cannot be handled because of an exception
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        factory: PodBuilder,
        registry: LaunchRegistry,
        create_retries: CreateRetries,
        fail: Callable[[TaskInstanceKey, str], None],
        drop: Callable[[TaskInstanceKey], None],
        give_up: Callable[[TaskInstanceKey, str, Exception], None],
        isolation: Isolation,
        job_id: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._factory = factory
        self._registry = registry
        self._create_retries = create_retries
        self._fail = fail
        self._drop = drop
        self._give_up = give_up
        self._isolation = isolation
        self._job_id = job_id
        self._clock = clock
        self._waiting: dict[TaskInstanceKey, WaitingLaunch] = {}

    def add(self, waiting: WaitingLaunch) -> None:
        """Launch a task instance as soon as it may; what waited under the same key is replaced."""
        self._waiting[waiting.job.key] = waiting

    def relaunch(self, launch: Launch, job: KubernetesJob, entry: LedgerEntry | None) -> None:
        """
        Launch a task instance again when that is due.

        :param entry: what was decided about the launch that has failed; None if it has not
        """
        self.add(
            WaitingLaunch(
                job=job,
                ti_id=launch.ti_id,
                not_before=self._clock() + (_seconds_until(entry) if entry else 0.0),
                is_relaunch=True,
                previous_name=launch.name,
            )
        )

    def relaunching(self) -> dict[TaskInstanceKey, str]:
        """Return the task instances whose relaunch waits, with their UUIDs."""
        return {key: item.ti_id for key, item in self._waiting.items() if item.is_relaunch}

    def take_back(self, launch: Launch) -> bool:
        """Do not replace a launch, if its replacement waits; return whether it did."""
        waiting = self._waiting.get(launch.key)
        if waiting is None or not waiting.is_relaunch or waiting.ti_id != launch.ti_id:
            return False
        del self._waiting[launch.key]
        return True

    def waiting(self) -> set[str]:
        """Return the UUIDs of all task instances whose launch waits."""
        return {item.ti_id for item in self._waiting.values()}

    def remove(self, key: TaskInstanceKey) -> None:
        """Do not launch a task instance that still waits."""
        self._waiting.pop(key, None)

    def publish_due(self) -> bool:
        """
        Ask for the creation of the pods whose time has come, as many as may be done at once.

        :return: whether some are left to the next call
        :raises DatabaseAwayError: if the database does not answer; everything waits on then
        """
        now = self._clock()
        due = [
            item
            for key, item in self._waiting.items()
            if item.not_before <= now and self._registry.is_clear(key, now)
        ]
        if not due:
            return False
        is_more, due = len(due) > PUBLISH_BATCH, due[:PUBLISH_BATCH]
        read = self._isolation.batch("publish", due, self._read, name=_key, give_up=self._cannot)
        return self._publish_all(read) or is_more

    def _read(self, due: Sequence[WaitingLaunch]) -> list[_Read]:
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({item.ti_id for item in due}, session=session)
            histories = ledger.read_histories({item.job.key: item.ti_id for item in due}, session=session)
            # The time that Airflow gives a pod to come up is the replacement's own.
            relaunches = {item.ti_id for item in due if item.is_relaunch}
            task_instances.begin_queued_anew(relaunches, self._job_id, at=datetime.now(UTC), session=session)
        return [_Read(item, rows.get(item.ti_id), histories[item.job.key]) for item in due]

    def _publish_all(self, due: Iterable[_Read]) -> bool:
        """Build pods; return whether the time has run out."""
        began = self._clock()
        for item, row, history in due:
            publish = partial(self._publish_one, row=row, history=history)
            self._isolation.alone("build", item, publish, name=_key, give_up=self._cannot)
            if self._clock() - began > BUILD_BUDGET:
                return True
        return False

    def _cannot(self, item: WaitingLaunch, error: Exception) -> None:
        self.remove(item.job.key)
        self._give_up(item.job.key, item.ti_id, error)

    def _publish_one(self, item: WaitingLaunch, row: TaskInstanceRow | None, history: LaunchHistory) -> None:
        key = item.job.key
        if self._waits_on(item, history):
            return
        if not is_wanted(key, row, self._job_id):
            self._drop(key)
        elif history.last and history.last.decision.action is not Action.RELAUNCH:
            self._deliver(key, history.last)
        else:
            self._publish(item, history)
        self.remove(key)

    def _deliver(self, key: TaskInstanceKey, entry: LedgerEntry) -> None:
        """
        Report a failure that was decided on, in this very try, and that the scheduler has not been told of.

        Whoever has decided died before. A failure that was reported is not met again here: the next try has
        another number, and a cleared task instance another UUID.
        """
        log.warning("%s is not launched: its last launch has failed, and is not to be repeated", key)
        self._fail(
            key,
            f"Pod {entry.worker_name} failed before the task's process had started: reason {entry.reason}; "
            f"{entry.decision.explanation}",
        )

    def _waits_on(self, item: WaitingLaunch, history: LaunchHistory) -> bool:
        """Whether a launch that this scheduler takes for the first one is a relaunch, and not due yet."""
        # The scheduler that has decided on it has died or handed it over; the ledger knows when it is due.
        if item.is_relaunch or history.last is None:
            return False
        item.is_relaunch = True
        seconds = _seconds_until(history.last)
        item.not_before = self._clock() + seconds
        return seconds > 0

    def _publish(self, waiting: WaitingLaunch, history: LaunchHistory) -> None:
        key = waiting.job.key
        try:
            launch = self._factory.make_launch(waiting, history)
        except PodMutationHookException as error:
            log.exception("The pod mutation hook failed for %s", key)
            self._fail(key, f"Pod mutation hook failed: {error.__cause__!r}")
        except PodReconciliationError as error:
            log.exception("Template, configuration and override could not be merged for %s", key)
            self._fail(key, f"Pod could not be put together: {error.__cause__!r}")
        except Exception as error:
            # A template that cannot be read, for one. It concerns this task alone, not the scheduler.
            log.exception("No pod could be built for %s", key)
            self._fail(key, f"Pod could not be built: {error!r}")
        else:
            self._registry.hold(launch)
            self._create_retries.ask(launch)


def _key(item: WaitingLaunch) -> TaskInstanceKey:
    return item.job.key


def _seconds_until(entry: LedgerEntry) -> float:
    if entry.due is None:
        return 0.0
    seconds = (entry.due - datetime.now(UTC)).total_seconds()
    # The clock of the scheduler that has written it may have been ahead of ours.
    return min(max(0.0, seconds), entry.decision.delay)
