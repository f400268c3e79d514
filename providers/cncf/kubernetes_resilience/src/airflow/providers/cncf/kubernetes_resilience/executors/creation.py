# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Create calls that have failed: repeated, made under another name, or given up."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch, LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.pod_factory import rename
from airflow.providers.cncf.kubernetes_resilience.executors.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.executors.verdict import runs_in_sibling
from airflow.providers.cncf.kubernetes_resilience.pods.errors import KubernetesApiError, PodConflictError
from airflow_resilience.backoff import Backoff
from airflow_resilience.decision import UNLIMITED

log = logging.getLogger(__name__)

PUBLISH_BACKOFF = Backoff(initial=1.0, maximum=30.0, jitter=0.5)
"""Between attempts to create a pod, unless the API server names a time."""

_QUOTA, _MODIFIED, _TOO_OLD = "exceeded quota", "object has been modified", "too old resource version"


@dataclass(frozen=True, slots=True)
class _Failed:
    """A create call that has failed, and what is to be done about it."""

    launch: Launch
    not_before: float
    final: KubernetesApiError | None = None
    """With what it is given up; None if it is repeated."""


class Creations:
    """
    Sees create calls through to their end.

    :param registry: a launch that is not the current one any more is not created any more
    :param create: asks for a pod's creation, by launch id and manifest, without waiting for it
    :param fail: reports a task instance as failed, with the reason
    :param drop: gives back the slot of a task instance that is not to be launched any more
    :param job_id: this scheduler's job
    :param retries: how often a create call is repeated; -1 for no limit
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        create: Callable[[str, dict[str, Any]], None],
        fail: Callable[[TaskInstanceKey, str], None],
        drop: Callable[[TaskInstanceKey], None],
        job_id: int | None,
        retries: int,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._create = create
        self._fail = fail
        self._drop = drop
        self._job_id = job_id
        self._retries = retries
        self._clock = clock
        self._failed: dict[str, _Failed] = {}

    def ask(self, launch: Launch) -> None:
        """Ask for the creation of a launch's pod."""
        if launch.body is None:
            raise AssertionError("a launch without identity has a manifest")
        launch.may_exist = True
        launch.calls += 1
        self._create(launch.launch_id, launch.body)

    def failed(self, launch: Launch, error: KubernetesApiError) -> None:
        """
        Take in that a create call has failed; what follows is up to :meth:`tick`.

        An API server that is away or overloaded is waited for, as long as Airflow lets a task be queued. What
        it has refused for now is asked for as often as configured. A name that is taken is changed, once: a
        pod override can give each try and each phase of a task the same one, and pods before this one may be
        kept.
        """
        if _is_name_taken(error) and not launch.is_renamed:
            taken = launch.name
            rename(launch)
            log.info("There is another pod %s; that of %s is created as %s", taken, launch.key, launch.name)
            self._failed[launch.launch_id] = _Failed(launch, self._clock())
        elif error.transient:
            self._wait(launch, error)
        elif _may_pass(error) and (self._retries == UNLIMITED or launch.publish_attempts < self._retries):
            launch.publish_attempts += 1
            self._repeat(launch, error, launch.publish_attempts, self._retries)
        else:
            self._failed[launch.launch_id] = _Failed(launch, self._clock(), final=error)
        launch.may_exist = error.leaves_open or launch.unanswered > 0

    def tick(self) -> None:
        """
        Repeat or give up what has failed and whose time has come.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; everything waits on then
        """
        due = self._due(self._clock())
        if not due:
            return
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({item.launch.ti_id for item in due}, session=session)
        for item in due:
            del self._failed[item.launch.launch_id]
            self._go_on(item, rows.get(item.launch.ti_id))

    def _due(self, now: float) -> list[_Failed]:
        due = []
        for launch_id, item in list(self._failed.items()):
            if not self._registry.is_current(item.launch) or item.launch.body is None:
                del self._failed[launch_id]
            elif item.not_before <= now:
                due.append(item)
        return due

    def _go_on(self, item: _Failed, row: TaskInstanceRow | None) -> None:
        launch = item.launch
        # If the worker runs, a call without an answer was carried out, and finds the pod when it is repeated.
        # To give it up would fail, or delete, a healthy task.
        runs = _runs(launch, row)
        if not runs and not is_wanted(launch.key, row, self._job_id):
            self._drop(launch.key)
        elif item.final is None:
            self.ask(launch)
        elif runs:
            self._wait(launch, item.final)
        else:
            self._give_up(launch, item.final)

    def _wait(self, launch: Launch, error: KubernetesApiError) -> None:
        launch.unanswered += 1
        self._repeat(launch, error, launch.unanswered, UNLIMITED)

    def _repeat(self, launch: Launch, error: KubernetesApiError, attempt: int, limit: int) -> None:
        delay = error.retry_after or PUBLISH_BACKOFF.delay(attempt, random.random)
        log.warning(
            "[Try %s of %s] Pod %s/%s for %s could not be created (%s); trying again in %.1f s",
            attempt,
            "unlimited" if limit == UNLIMITED else limit,
            launch.namespace,
            launch.name,
            launch.key,
            error,
            delay,
        )
        self._failed[launch.launch_id] = _Failed(launch, self._clock() + delay)

    def _give_up(self, launch: Launch, error: KubernetesApiError) -> None:
        log.error("Pod %s/%s could not be created: %s", launch.namespace, launch.name, error)
        self._drop(launch.key)
        self._fail(launch.key, f"Pod {launch.namespace}/{launch.name} not created: {error}")


def is_wanted(key: TaskInstanceKey, row: TaskInstanceRow | None, job_id: int | None) -> bool:
    """
    Whether a task instance still waits for its pod.

    :param row: the task instance as it is now
    :param job_id: the scheduler that is to launch it
    """
    if (
        row is not None
        and row.state == TaskInstanceState.QUEUED
        and row.key.try_number == key.try_number
        and row.queued_by_job_id == job_id
    ):
        return True
    log.info("Not launching %s: it is not queued by this scheduler any more", key)
    return False


def _runs(launch: Launch, row: TaskInstanceRow | None) -> bool:
    return (
        row is not None
        and row.state == TaskInstanceState.RUNNING
        and row.key.try_number == launch.key.try_number
        and not runs_in_sibling(row.hostname, launch.name)
    )


def _is_name_taken(error: KubernetesApiError) -> bool:
    return isinstance(error, PodConflictError) and error.reason == "AlreadyExists"


def _may_pass(error: KubernetesApiError) -> bool:
    """Whether what was refused may be accepted later; the cases are upstream's documented ones."""
    return (
        (error.status == 403 and _QUOTA in error.message)
        or (error.status == 409 and _MODIFIED in error.message)
        or (error.status == 410 and _TOO_OLD in error.message)
    )
