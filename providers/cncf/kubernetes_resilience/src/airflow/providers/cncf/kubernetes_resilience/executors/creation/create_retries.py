# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Create calls that have failed: repeated, made under another name, or given up."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder, rename
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import CreatePod, PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Creation,
    Launch,
    LaunchState,
    NextAttempt,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    standing,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import Answer, answer_of, retry_delay
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import find_no_pod
from airflow_resilience.backoff import Backoff
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import UNLIMITED

log = logging.getLogger(__name__)

PUBLISH_BACKOFF = Backoff(initial=1.0, maximum=30.0, jitter=0.5)
"""Between attempts to create a pod, unless the API server asks for a longer pause."""

REFUSALS = 15
"""
Create calls that are refused, though not for the manifest, until the launch has failed. With the pauses
between them that takes some five minutes: enough to renew a credential, to restore a role binding that a
deployment has replaced, or for a proxy to recover. A retry policy can wait for longer.
"""

TOKEN_SHARE = 1 / 3
"""Share of its validity after which a token is replaced when a create call is repeated. The rest is for the
pod to start."""

_MAY_PASS = frozenset({Answer.QUOTA_EXCEEDED, Answer.MODIFIED})
"""Repeated as often as ``task_publish_max_retries`` says; the cases are upstream's documented ones."""

_MEANINGS = {
    Answer.QUOTA_EXCEEDED: (StateChangeCategory.INFRASTRUCTURE, StateChangeReason.RESOURCE_EXHAUSTION),
    Answer.MODIFIED: (StateChangeCategory.INFRASTRUCTURE, StateChangeReason.ADMISSION_REFUSED),
}
_REFUSED_FOR_GOOD = (StateChangeCategory.APPLICATION, StateChangeReason.ADMISSION_REFUSED)

_FINAL = _MAY_PASS | {Answer.INVALID, Answer.NOT_FOUND, Answer.NAME_TAKEN}
"""Fails the task: it is about the manifest, or it has been repeated as configured."""


@dataclass(frozen=True, slots=True)
class NotLaunched:
    """A launch whose pod is not created."""

    launch: Launch
    why: str | None = None
    """The failure to report; None if the task instance is not queued by this scheduler any more."""
    context: ExecutionContext | None = None
    """The same for whoever is told of the failure; None if that is stored already."""
    error: Exception | None = None
    """The exception because of which it cannot be handled."""
    runs: bool = False
    """Whether its task instance runs: another worker has started it."""
    is_anothers: bool = False
    """Whether its task instance is another scheduler's, which may have adopted a pod that a call has made."""


class CreateRetries:
    """
    Makes create calls, and repeats those that fail, or gives them up.

    :param builder: makes fresh tokens
    :param token_validity: of such a token, seconds
    :param job_id: this scheduler's job
    :param retries: how often a create call is repeated; -1 for no limit
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        commands: PodCommands,
        builder: PodBuilder,
        isolation: Isolation,
        token_validity: float,
        job_id: int | None,
        retries: int,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._commands = commands
        self._builder = builder
        self._isolation = isolation
        self._token_age = token_validity * TOKEN_SHARE
        self._job_id = job_id
        self._retries = retries
        self._clock = clock

    def ask(self, launch: Launch) -> None:
        """
        Ask for the creation of a launch's pod.

        If it is asked for again after a while, the pod gets a fresh token. A pod that an earlier call has
        created is found, and keeps the token that it was created with.
        """
        creation = _creation(launch)
        if not launch.token_made_at:
            launch.token_made_at = self._clock()
        elif self._clock() - launch.token_made_at >= self._token_age:
            self._builder.renew_token(launch)
            launch.token_made_at = self._clock()
        creation.may_exist, creation.next_attempt = True, None
        launch.calls += 1
        self._commands.send(CreatePod(launch.launch_id, creation.body))

    def failed(self, launch: Launch, error: KubernetesApiError) -> None:
        """
        Decide what follows a create call that has failed; :meth:`tick` does it.

        If the API server is away or overloaded, the call is repeated without a limit. If it has refused the
        call for now, the call is repeated as often as configured. A name that is taken is changed, once: a
        pod override can give each try and each phase of a task the same one, and earlier pods may be kept. A
        manifest that is refused fails the task. Any other refusal is about credentials, or does not come from
        the API server. It is waited out for :data:`REFUSALS` calls, and is a launch failure then.
        """
        creation, answer = _creation(launch), answer_of(error)
        creation.was_unclear |= error.leaves_open
        if answer is Answer.NAME_TAKEN and not creation.is_renamed:
            taken = launch.name
            rename(launch)
            log.info("There is another pod %s; that of %s is created as %s", taken, launch.key, launch.name)
            creation.next_attempt = NextAttempt(self._clock())
        elif error.transient:
            self._wait(launch, error)
        elif answer in _MAY_PASS and (self._retries == UNLIMITED or creation.rejections < self._retries):
            creation.rejections += 1
            self._repeat(launch, error, creation.rejections, self._retries)
        elif answer not in _FINAL and creation.refusals < REFUSALS - 1:
            creation.refusals += 1
            self._repeat(launch, error, creation.refusals, REFUSALS - 1)
        else:
            creation.next_attempt = NextAttempt(self._clock(), final=error)
        creation.may_exist = creation.was_unclear

    def tick(self) -> list[NotLaunched]:
        """
        Repeat the calls that have failed and are due, or give them up.

        :return: the launches that are given up
        :raises DatabaseAwayError: if the database does not answer; everything waits on then
        """
        given_up: list[NotLaunched] = []

        def go_on(item: tuple[Launch, TaskInstanceRow | None]) -> None:
            if result := self._go_on(*item):
                given_up.append(result)

        def cannot(launch: Launch, error: Exception) -> None:
            given_up.append(NotLaunched(launch, error=error))

        due = self._due(self._clock())
        for item in self._isolation.batch("create", due, self._read, name=_name, give_up=cannot):
            self._isolation.alone(
                "create-again",
                item,
                go_on,
                name=lambda item: _name(item[0]),
                give_up=lambda item, error: cannot(item[0], error),
            )
        return given_up

    def _read(self, due: Sequence[Launch]) -> list[tuple[Launch, TaskInstanceRow | None]]:
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({launch.ti_id for launch in due}, session=session)
        return [(launch, rows.get(launch.ti_id)) for launch in due]

    def _due(self, now: float) -> list[Launch]:
        return [
            launch
            for launch in self._registry.in_state(LaunchState.CREATING)
            if (attempt := _creation(launch).next_attempt) and attempt.not_before <= now
        ]

    def _go_on(self, launch: Launch, row: TaskInstanceRow | None) -> NotLaunched | None:
        attempt = _creation(launch).next_attempt
        if attempt is None:
            raise AssertionError("a create call that has failed is followed by something")
        # If the worker runs, a call without an answer was carried out, and its repetition finds the pod. To
        # give the launch up would fail, or delete, a healthy task.
        runs = _runs(launch, row)
        now = standing(row, try_number=launch.key.try_number, job_id=self._job_id)
        if now is Standing.ELSEWHERE:
            log.info("%s was adopted by scheduler job %s", launch.key, row and row.queued_by_job_id)
            return NotLaunched(launch, is_anothers=True)
        if not runs and now is not Standing.QUEUED:
            log.info("Not launching %s: it is not queued any more", launch.key)
            return NotLaunched(launch, runs=is_running(row))
        if attempt.final is None:
            self.ask(launch)
        elif runs:
            self._wait(launch, attempt.final)
        elif answer_of(attempt.final) in _FINAL:
            log.error("Pod %s/%s could not be created: %s", launch.namespace, launch.name, attempt.final)
            why = f"Pod {launch.namespace}/{launch.name} not created: {attempt.final}"
            return NotLaunched(launch, why, _explain(launch, attempt.final))
        else:
            self._end(launch, attempt.final)
        return None

    def _end(self, launch: Launch, error: KubernetesApiError) -> None:
        # If its worker has reported meanwhile, the launch has not ended, and its pod is asked for again.
        not_before = self._clock() + PUBLISH_BACKOFF.maximum
        _creation(launch).next_attempt = NextAttempt(not_before, final=error)
        failure = find_no_pod(
            launch.namespace,
            launch.name,
            refused=error.is_denied,
            message=f"not created: {error}",
        )
        self._registry.end(launch, failure, self._clock())

    def _wait(self, launch: Launch, error: KubernetesApiError) -> None:
        creation = _creation(launch)
        creation.unanswered, creation.refusals = creation.unanswered + 1, 0
        self._repeat(launch, error, creation.unanswered, UNLIMITED)

    def _repeat(self, launch: Launch, error: KubernetesApiError, attempt: int, limit: int) -> None:
        delay = retry_delay(error, PUBLISH_BACKOFF, attempt, random.random)
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
        _creation(launch).next_attempt = NextAttempt(self._clock() + delay)


def _explain(launch: Launch, error: KubernetesApiError) -> ExecutionContext:
    category, reason = _MEANINGS.get(answer_of(error), _REFUSED_FOR_GOOD)
    known = {
        MetadataKey.POD: launch.name,
        MetadataKey.NAMESPACE: launch.namespace,
        MetadataKey.LAUNCH: launch.number,
        MetadataKey.MESSAGE: str(error),
    }
    metadata = {name.value: value for name, value in known.items()}
    return ExecutionContext(category, reason, ContextSource.EXECUTOR, metadata)


def _name(launch: Launch) -> str:
    return launch.launch_id


def _creation(launch: Launch) -> Creation:
    if launch.creation is None:
        raise AssertionError("a launch whose pod is not known is being created")
    return launch.creation


def awaits_pod(launch: Launch, row: TaskInstanceRow | None, job_id: int | None) -> bool:
    """
    Whether a task instance is still queued, and waits for the pod of this launch.

    :param row: the task instance as it is now
    :param job_id: the scheduler that is to launch it
    """
    return standing(row, try_number=launch.key.try_number, job_id=job_id) is Standing.QUEUED


def is_running(row: TaskInstanceRow | None) -> TypeGuard[TaskInstanceRow]:
    """Whether a worker runs a task instance."""
    return row is not None and row.state == TaskInstanceState.RUNNING


def _runs(launch: Launch, row: TaskInstanceRow | None) -> bool:
    return is_running(row) and row.key.try_number == launch.key.try_number and launch.runs(row.hostname)
