# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Create calls that have failed: repeated, made under another name, or given up."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import rename
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
    PodConflictError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure, find_no_pod
from airflow_resilience.backoff import Backoff
from airflow_resilience.decision import UNLIMITED

log = logging.getLogger(__name__)

PUBLISH_BACKOFF = Backoff(initial=1.0, maximum=30.0, jitter=0.5)
"""Between attempts to create a pod, unless the API server names a time."""

REFUSALS = 15
"""
Create calls that may be refused for something that is not the manifest's fault, before that counts as the
end of the launch. With the pauses between them that is some five minutes: as long as it takes to renew a
credential, to bring back a role binding that a deployment has replaced, or for a proxy to find its way again.
For longer a retry policy can wait, which knows the task.
"""

PROMPT = 10.0
"""
Seconds after which a create call that is not answered waits for no fault of its pod: for its turn, or for
as long as the API server has asked for fewer requests. One that is sent takes a fraction of a second.
"""

TOKEN_SHARE = 1 / 3
"""Part of its validity after which a token is replaced when a create call is repeated: the rest of it is for
the pod to come up."""

_REFUSED = frozenset({401, 403})
_MANIFEST_AT_FAULT = frozenset({400, 413, 422})

_QUOTA, _MODIFIED, _TOO_OLD = "exceeded quota", "object has been modified", "too old resource version"


@dataclass(frozen=True, slots=True)
class _Failed:
    """A create call that has failed, and what is to be done about it."""

    launch: Launch
    not_before: float
    final: KubernetesApiError | None = None
    """With what it is given up; None if it is repeated."""


class CreateRetries:
    """
    Sees create calls through to their end.

    :param registry: a launch that is not the current one any more is not created any more
    :param create: asks for a pod's creation, by launch id and manifest, without waiting for it
    :param fail: reports a task instance as failed, with the reason
    :param drop: gives back the slot of a task instance that is not to be launched any more
    :param give_up: ends a task instance, by key and UUID, that cannot be handled because of an exception
    :param ended: told of a launch that has ended without a pod
    :param renew_token: puts a fresh token into a launch's manifest
    :param token_validity: of such a token, seconds
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
        give_up: Callable[[TaskInstanceKey, str, Exception], None],
        isolation: Isolation,
        ended: Callable[[Launch, PodFailure], None],
        renew_token: Callable[[Launch], None],
        token_validity: float,
        job_id: int | None,
        retries: int,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._create = create
        self._fail = fail
        self._drop = drop
        self._unhandled = give_up
        self._isolation = isolation
        self._ended = ended
        self._renew_token = renew_token
        self._token_age = token_validity * TOKEN_SHARE
        self._job_id = job_id
        self._retries = retries
        self._clock = clock
        self._failed: dict[str, _Failed] = {}

    def ask(self, launch: Launch) -> None:
        """
        Ask for the creation of a launch's pod.

        When it is asked for again the pod's token may have expired; it then gets another one. Should it have
        been created by a call before, that pod is found, and keeps the token that it was created with.
        """
        if not launch.token_made_at:
            launch.token_made_at = self._clock()
        elif self._clock() - launch.token_made_at >= self._token_age:
            self._renew_token(launch)
            launch.token_made_at = self._clock()
        if launch.body is None:
            raise AssertionError("a launch without identity has a manifest")
        launch.may_exist = True
        launch.calls += 1
        self._create(launch.launch_id, launch.body)

    def failed(self, launch: Launch, error: KubernetesApiError) -> None:
        """
        Take in that a create call has failed; what follows is up to :meth:`tick`.

        An API server that is away or overloaded is waited for, however long that takes. What it has refused
        for now is asked for as often as configured. A name that is taken is changed, once: a pod override can
        give each try and each phase of a task the same one, and pods before this one may be kept. A manifest
        that is refused fails the task. Any other refusal says something about credentials, or comes from
        something else than the API server: it is waited out for :data:`REFUSALS` calls, and is a failure of
        the launch like any other then.
        """
        launch.was_unclear |= error.leaves_open
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
        elif not _is_final(error) and launch.refusals < REFUSALS - 1:
            launch.refusals += 1
            self._repeat(launch, error, launch.refusals, REFUSALS - 1)
        else:
            self._failed[launch.launch_id] = _Failed(launch, self._clock(), final=error)
        launch.may_exist = launch.was_unclear

    def waiting(self) -> set[str]:
        """Return the UUIDs of those task instances whose create calls are repeated, or open for long."""
        return {
            launch.ti_id
            for launch in self._registry.starting()
            if launch.is_created_again or self._is_late(launch)
        }

    def _is_late(self, launch: Launch) -> bool:
        # A launch that is not repeated was asked for when its token was made.
        is_open = launch.ref is None and launch.calls > 0
        return is_open and self._clock() - launch.token_made_at >= PROMPT

    def tick(self) -> None:
        """
        Repeat or give up what has failed and whose time has come.

        :raises DatabaseAwayError: if the database does not answer; everything waits on then
        """
        due = self._due(self._clock())
        for item, row in self._isolation.batch("create", due, self._read, name=_name, give_up=self._cannot):
            go_on = partial(self._go_on, row=row)
            self._isolation.alone("create-again", item, go_on, name=_name, give_up=self._cannot)

    def _read(self, due: Sequence[_Failed]) -> list[tuple[_Failed, TaskInstanceRow | None]]:
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({item.launch.ti_id for item in due}, session=session)
        return [(item, rows.get(item.launch.ti_id)) for item in due]

    def _cannot(self, item: _Failed, error: Exception) -> None:
        self._failed.pop(item.launch.launch_id, None)
        self._unhandled(item.launch.key, item.launch.ti_id, error)

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
        elif _is_final(item.final):
            self._give_up(launch, item.final)
        else:
            self._end(launch, item.final)
        if self._failed.get(launch.launch_id) is item:
            del self._failed[launch.launch_id]

    def _end(self, launch: Launch, error: KubernetesApiError) -> None:
        self._ended(
            launch,
            find_no_pod(
                launch.namespace,
                launch.name,
                refused=error.status in _REFUSED,
                message=f"not created: {error}",
            ),
        )
        # Should that not be the end, because its worker has reported in between, it is asked for again.
        self._failed[launch.launch_id] = _Failed(launch, self._clock() + PUBLISH_BACKOFF.maximum, final=error)

    def _wait(self, launch: Launch, error: KubernetesApiError) -> None:
        launch.unanswered, launch.refusals = launch.unanswered + 1, 0
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


def _name(item: _Failed) -> str:
    return item.launch.launch_id


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
        and launch.runs(row.hostname)
    )


def _is_name_taken(error: KubernetesApiError) -> bool:
    return isinstance(error, PodConflictError) and error.reason == "AlreadyExists"


def _is_final(error: KubernetesApiError) -> bool:
    """Whether a refusal ends the task: it is about the manifest, or it has been repeated as configured."""
    return (
        (error.status in _MANIFEST_AT_FAULT and not isinstance(error, ConnectionFailedError))
        or (error.status == 404 and error.reason == "NotFound")  # there is no such namespace
        or _is_name_taken(error)
        or _may_pass(error)
    )


def _may_pass(error: KubernetesApiError) -> bool:
    """Whether what was refused may be accepted later; the cases are upstream's documented ones."""
    return (
        (error.status == 403 and _QUOTA in error.message)
        or (error.status == 409 and _MODIFIED in error.message)
        or (error.status == 410 and _TOO_OLD in error.message)
    )
