# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Sends create calls. Failed calls are repeated, made under another name, or given up.

:data:`COURSES` and ``docs/launch-failures.md`` have the number of repetitions, and the reason of the failed
launch that follows.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

from attrs import define

from airflow.providers.cncf.kubernetes_resilience.executors.creation.outages import Outages
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder, rename
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Creation,
    Launch,
    NextAttempt,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import Answer, answer_of, retry_delay
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import classify
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    CREATION_CONFLICT,
    CREATION_FAILED,
    CREATION_FORBIDDEN,
    CREATION_REFUSED,
    CREATION_UNANSWERED,
    PUBLISH_RETRIES_USED,
    QUOTA_EXCEEDED,
    find_no_pod,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import CreatePod
from airflow_resilience.backoff import Backoff
from airflow_resilience.decision import UNLIMITED
from airflow_resilience.outages import Dependency, DependencyKind

log = logging.getLogger(__name__)

PUBLISH_BACKOFF = Backoff(initial=1.0, maximum=30.0, jitter=0.5)
"""Between attempts to create a pod, unless the API server asks for a longer pause."""

REFUSALS = 15
"""
Number of refused create calls, for reasons other than the pod, until the launch has failed. With the pauses
between them that takes some five minutes: enough to renew a credential, to restore a role binding that a
deployment has replaced, or for a proxy to recover. A retry policy can wait for longer.
"""

ALONE = 900.0
"""Seconds for which the calls of one launch fail, and the pods of others are created, until it has failed."""

TOKEN_SHARE = 1 / 3
"""Share of a token's validity after which a repeated create call gets a fresh token. The rest is for the pod
to start."""


class Course(NamedTuple):
    """Courses of a create call after an answer."""

    repeats: int
    """Number of repetitions of the call, after any refusals."""
    reason: str
    """Of the failed launch that follows."""


COURSES: Mapping[Answer, Course] = {
    # Waited out first: see ALONE.
    Answer.TRANSIENT: Course(0, CREATION_FAILED),
    Answer.REFUSED: Course(REFUSALS - 1, CREATION_REFUSED),
    Answer.NOT_LET_THROUGH: Course(REFUSALS - 1, CREATION_UNANSWERED),
    Answer.FOREIGN: Course(REFUSALS - 1, CREATION_UNANSWERED),
    Answer.MODIFIED: Course(REFUSALS - 1, CREATION_CONFLICT),
    Answer.CONFLICT: Course(REFUSALS - 1, CREATION_CONFLICT),
    Answer.QUOTA_EXCEEDED: Course(0, QUOTA_EXCEEDED),
    Answer.FORBIDDEN: Course(0, CREATION_FORBIDDEN),
    Answer.INVALID: Course(0, CREATION_FORBIDDEN),
    Answer.NOT_FOUND: Course(0, CREATION_FORBIDDEN),
    Answer.NAME_TAKEN: Course(0, CREATION_FORBIDDEN),
}

_OF_UPSTREAM = frozenset({Answer.QUOTA_EXCEEDED, Answer.MODIFIED})
"""Repeated as often as ``task_publish_max_retries`` says, if that is set: upstream's documented cases."""


@define(kw_only=True, eq=False, repr=False, slots=False)
class CreateRetries:
    """Makes create calls, and decides what follows failed calls."""

    _registry: LaunchRegistry
    _commands: PodCommands
    _builder: PodBuilder
    """Makes fresh tokens."""
    _outages: Outages
    """Learn the namespaces without admission, and say which launches wait for them."""
    _token_validity: float
    """Of such a token, seconds."""
    _retries: int | None
    """``task_publish_max_retries``; None if that is not set."""
    _clock: Callable[[], float]

    @cached_property
    def _configured(self) -> Mapping[Answer, float]:
        """Return the configured number of repetitions of a call, for each answer that has one."""
        if self._retries is None:
            return {}
        return dict.fromkeys(_OF_UPSTREAM, math.inf if self._retries == UNLIMITED else self._retries)

    def ask(self, launch: Launch) -> None:
        """
        Ask for the creation of a launch's pod.

        A repeated request gets a fresh token after a while. A pod that an earlier call has created is found,
        and keeps its own token.
        """
        creation = _creation(launch)
        if not launch.token_made_at:
            launch.token_made_at = launch.first_token_at = self._clock()
        elif self._clock() - launch.token_made_at >= self._token_validity * TOKEN_SHARE:
            self._builder.renew_token(creation, launch.ti_id)
            launch.token_made_at = self._clock()
        creation.next_attempt = None
        launch.calls += 1
        self._commands.send(CreatePod(launch.launch_id, creation.body))

    def failed(self, launch: Launch, error: KubernetesApiError) -> None:
        """
        Decide what follows a failed create call, and when.

        If the API server is away or overloaded, the call is repeated for as long as no pod can be created. A
        taken name is changed, once: a pod override can give each try and each phase of a task the same name,
        and earlier pods may be kept. For other answers see :data:`COURSES`. No answer resets the count of
        refusals: two alternating answers would never come to an end.
        """
        creation = _creation(launch)
        # First: if the code below raises an exception, the launch is given up, and not forgotten.
        creation.next_attempt = NextAttempt(self._clock(), final=error)
        creation.was_unclear |= error.leaves_open
        answer = answer_of(error)
        if error.is_without_webhook and self._is_held(launch, error):
            return
        if answer is Answer.NAME_TAKEN and not creation.is_renamed:
            taken = launch.name
            rename(launch, creation)
            log.info("Pod name %s is taken; the pod of %s is created as %s", taken, launch.key, launch.name)
            creation.next_attempt = NextAttempt(self._clock())
        elif answer is Answer.TRANSIENT and not self._fails_alone(creation):
            self._wait(launch, error)
        elif answer in self._configured and creation.rejections < self._configured[answer]:
            creation.rejections += 1
            self._repeat(launch, error, creation.rejections, self._configured[answer])
        elif answer not in self._configured and creation.refusals < (limit := COURSES[answer].repeats):
            creation.refusals += 1
            self._repeat(launch, error, creation.refusals, limit)

    def _is_held(self, launch: Launch, error: KubernetesApiError) -> bool:
        """Note that a namespace has no admission; return whether the launch is held, without a call."""
        failure = find_no_pod(launch.namespace, launch.name, CREATION_FAILED, message=str(error))
        admission = Dependency(DependencyKind.ADMISSION, launch.namespace)
        self._outages.failed(launch, admission, classify(failure).context)
        creation = _creation(launch)
        if creation.was_unclear or launch.calls or launch.workload is None:
            return False  # there may be a pod
        return self._outages.hold_back(launch, creation.body)

    def repeat_later(self, launch: Launch) -> None:
        """Repeat a call after a pause instead of giving up: the worker runs."""
        self._wait(launch, _final_error(launch))

    def end(self, launch: Launch) -> None:
        """Note that a launch has failed with the last answer."""
        error = _final_error(launch)
        # If its worker has reported meanwhile, the launch has not ended, and its pod is asked for again.
        not_before = self._clock() + PUBLISH_BACKOFF.maximum
        _creation(launch).next_attempt = NextAttempt(not_before, final=error)
        answer = answer_of(error)
        failure = find_no_pod(
            launch.namespace,
            launch.name,
            COURSES[answer].reason,
            message=f"not created: {error}",
            pod_reason=PUBLISH_RETRIES_USED if answer in self._configured else None,
        )
        self._registry.end(launch, failure, self._clock())

    def _fails_alone(self, creation: Creation) -> bool:
        """Return whether a launch's calls have failed for long while pods of other launches were created."""
        now, created = self._clock(), self._registry.created
        looked_at, others = creation.others
        if not creation.unanswered:
            creation.others = now, created
        elif created > others:
            # An outage that lies in between is not such a time, however long it was.
            creation.alone += min(now - looked_at, ALONE / 3)
            creation.others = now, created
        return creation.alone >= ALONE

    def _wait(self, launch: Launch, error: KubernetesApiError) -> None:
        creation = _creation(launch)
        creation.unanswered += 1
        self._repeat(launch, error, creation.unanswered, math.inf)

    def _repeat(self, launch: Launch, error: KubernetesApiError, attempt: int, limit: float) -> None:
        delay = retry_delay(error, PUBLISH_BACKOFF, attempt, random.random)
        log.warning(
            "[Try %s of %s] Pod %s/%s for %s could not be created (%s); trying again in %.1f s",
            attempt,
            "unlimited" if limit == math.inf else limit,
            launch.namespace,
            launch.name,
            launch.key,
            error,
            delay,
        )
        _creation(launch).next_attempt = NextAttempt(self._clock() + delay)


def _final_error(launch: Launch) -> KubernetesApiError:
    attempt = _creation(launch).next_attempt
    if attempt is None or attempt.final is None:
        raise AssertionError("a create call that is given up has failed")
    return attempt.final


def _creation(launch: Launch) -> Creation:
    if launch.creation is None:
        raise AssertionError("a launch whose pod is not known is being created")
    return launch.creation
