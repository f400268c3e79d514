# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
From a job to a pod that exists: waiting, building, creating, and repeating a create call that failed.

Everything here runs in the scheduler's thread; the calls themselves are made elsewhere and answered
through the executor's inbox.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.exceptions import PodMutationHookException, PodReconciliationError
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.launches import (
    Launch,
    LaunchRegistry,
    WaitingLaunch,
)
from airflow.providers.cncf.kubernetes_resilience.executors.pod_factory import PodFactory
from airflow.providers.cncf.kubernetes_resilience.executors.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.errors import KubernetesApiError
from airflow_resilience import ledger
from airflow_resilience.backoff import Backoff
from airflow_resilience.policy import UNLIMITED

log = logging.getLogger(__name__)

BUILD_BUDGET = 0.2
"""Seconds that one turn of the scheduler's loop may spend on building pods; the rest waits for the next."""

PUBLISH_BACKOFF = Backoff(initial=1.0, maximum=30.0, jitter=0.5)
"""Between attempts to create a pod, unless the API server names a time."""

_QUOTA, _MODIFIED, _TOO_OLD = "exceeded quota", "object has been modified", "too old resource version"


class Publisher:
    """
    Creates the pods of launches.

    :param factory: builds pods
    :param registry: where launches are held from the moment that their creation is asked for
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
        factory: PodFactory,
        registry: LaunchRegistry,
        create: Callable[[str, dict[str, Any]], None],
        fail: Callable[[TaskInstanceKey, str], None],
        drop: Callable[[TaskInstanceKey], None],
        job_id: int | None,
        retries: int,
        clock: Callable[[], float],
    ) -> None:
        self._factory = factory
        self._registry = registry
        self._create = create
        self._fail = fail
        self._drop = drop
        self._job_id = job_id
        self._retries = retries
        self._clock = clock
        self._waiting: dict[TaskInstanceKey, WaitingLaunch] = {}
        self._repeating: dict[str, tuple[Launch, float]] = {}

    def add(self, waiting: WaitingLaunch) -> None:
        """Launch a task instance as soon as it may; what waited under the same key is replaced."""
        self._waiting[waiting.job.key] = waiting

    def remove(self, key: TaskInstanceKey) -> None:
        """Do not launch a task instance that still waits."""
        self._waiting.pop(key, None)

    def publish_due(self) -> None:
        """
        Ask for the creation of every pod whose time has come.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; everything waits on then
        """
        now = self._clock()
        due = [
            item
            for key, item in self._waiting.items()
            if item.not_before <= now and self._registry.is_clear(key, now)
        ]
        repeats = self._repeats_due(now)
        if not due and not repeats:
            return
        ti_ids = {item.ti_id for item in due} | {launch.ti_id for launch in repeats}
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows(ti_ids, session=session)
            histories = ledger.read_histories({item.job.key: item.ti_id for item in due}, session=session)
        began = self._clock()
        for launch in repeats:
            del self._repeating[launch.launch_id]
            if self._is_wanted(launch.key, rows.get(launch.ti_id)):
                self._ask_for(launch)
        for item in due:
            key = item.job.key
            del self._waiting[key]
            if self._is_wanted(key, rows.get(item.ti_id)):
                self._publish(item, histories[key].relaunches + 1)
            if self._clock() - began > BUILD_BUDGET:
                break

    def repeat(self, launch: Launch, error: KubernetesApiError) -> bool:
        """
        Try a creation that failed once more, if that may help and is allowed.

        :return: False if the launch is to be given up
        """
        allowed = self._retries == UNLIMITED or launch.publish_attempts < self._retries
        if not (allowed and _may_pass(error)):
            return False
        launch.publish_attempts += 1
        delay = error.retry_after or PUBLISH_BACKOFF.delay(launch.publish_attempts, random.random)
        log.warning(
            "[Try %s of %s] Pod %s/%s for %s could not be created (%s); trying again in %.1f s",
            launch.publish_attempts,
            "unlimited" if self._retries == UNLIMITED else self._retries,
            launch.namespace,
            launch.name,
            launch.key,
            error,
            delay,
        )
        self._repeating[launch.launch_id] = (launch, self._clock() + delay)
        return True

    def _repeats_due(self, now: float) -> list[Launch]:
        due = []
        for launch_id, (launch, not_before) in list(self._repeating.items()):
            if not self._registry.is_current(launch) or launch.body is None:
                del self._repeating[launch_id]
            elif not_before <= now:
                due.append(launch)
        return due

    def _is_wanted(self, key: TaskInstanceKey, row: TaskInstanceRow | None) -> bool:
        if (
            row is not None
            and row.state == "queued"
            and row.key.try_number == key.try_number
            and row.queued_by_job_id == self._job_id
        ):
            return True
        log.info("Not launching %s: it is not queued by this scheduler any more", key)
        self._drop(key)
        return False

    def _publish(self, waiting: WaitingLaunch, number: int) -> None:
        key = waiting.job.key
        try:
            launch = self._factory.make_launch(waiting, number)
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
            self._ask_for(launch)

    def _ask_for(self, launch: Launch) -> None:
        if launch.body is None:
            raise AssertionError("a launch without identity has a manifest")
        launch.may_exist = True
        self._create(launch.launch_id, launch.body)


def _may_pass(error: KubernetesApiError) -> bool:
    """Whether the same create call may succeed later; the cases are upstream's documented ones."""
    return (
        (error.status == 403 and _QUOTA in error.message)
        or (error.status == 409 and _MODIFIED in error.message)
        or (error.status == 410 and _TOO_OLD in error.message)
        or error.status in (None, 429, 500, 502, 503, 504)
    )
