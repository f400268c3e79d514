# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What follows for a launch, by its situation and by its task instance's row.

Nothing is asked and nobody is told here. The end of a launch is assessed in :mod:`.assessment`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from airflow.providers.cncf.kubernetes_resilience.executors.failures.assessment import Assessment, assess
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskSnapshot,
    is_running,
)


class Situation(Enum):
    """Why the row of a launch's task instance is read. Pod and clock say so, and no row."""

    ENDED = auto()
    """The pod has ended, or was given up."""
    UNCHECKED = auto()
    """The worker has not started, and the row was not read for a while. Airflow does not tell an executor
    that a user has cleared, marked or deleted a task instance."""
    TOKEN_EXPIRED = auto()
    """The worker has not started, and its token has expired in an outage: it cannot start the task."""
    RELABELLED = auto()
    """The pod has the label of another scheduler. The official executor labels what it adopts before that is
    committed."""
    CREATION_DUE = auto()
    """A create call has failed, and what follows is due."""


class Asked(NamedTuple):
    """A launch whose task instance's row is read."""

    launch: Launch
    situation: Situation


class Step(Enum):
    """What is done about a launch that has not ended."""

    WAIT = auto()
    RELEASE = auto()
    """Another scheduler has the task instance, or nobody: the slot is freed, and the pod is left."""
    CANCEL = auto()
    """The launch is not wanted any more: the slot is freed, and the pod is deleted unless it has started."""
    FOLLOW = auto()
    """The same, and the task runs in another pod."""
    REPLACE = auto()
    """The pod is deleted unless it has started, and another one is created."""
    RELABEL = auto()
    """The pod gets this scheduler's label again."""
    CREATE = auto()
    """The pod is asked for again."""
    CREATE_LATER = auto()
    """The same after a pause: the worker runs, so that a call without an answer was carried out."""
    FAIL = auto()
    """The launch has failed with the last answer."""


def judge(
    situation: Situation,
    launch: Launch,
    task: TaskSnapshot,
    *,
    job_id: int | None,
    queued_again: bool = False,
) -> Step | Assessment:
    """
    Return what follows for a current launch.

    :param job_id: this scheduler's job
    :param queued_again: whether this executor has already been handed the task instance's next phase
    """
    match situation:
        case Situation.ENDED:
            return assess(launch, task, job_id=job_id, queued_again=queued_again)
        case Situation.RELABELLED:
            return Step.RELABEL if task.owner is not None and task.owner == job_id else Step.RELEASE
        case Situation.CREATION_DUE if queued_again:
            return Step.CANCEL  # a call was carried out, and the worker has reported
        case Situation.CREATION_DUE:
            return _judge_creation(launch, task, job_id)
        case _:
            return _judge_unstarted(situation, launch, task, job_id)


def _judge_unstarted(situation: Situation, launch: Launch, task: TaskSnapshot, job_id: int | None) -> Step:
    match task.standing(launch.key, job_id=job_id):
        case Standing.GONE | Standing.OVER:
            return Step.CANCEL
        # What waits to be launched is looked at when it is due. What is held may be due in an hour.
        case Standing.ELSEWHERE if launch.waiting is None or launch.state is LaunchState.HELD:
            # That scheduler may have adopted this very pod, before its label or our watch says so.
            return Step.RELEASE
        case Standing.QUEUED if situation is Situation.TOKEN_EXPIRED:
            return Step.REPLACE
    return Step.WAIT


def _judge_creation(launch: Launch, task: TaskSnapshot, job_id: int | None) -> Step:
    if launch.creation is None or launch.creation.next_attempt is None:
        raise AssertionError("a create call that has failed is followed by something")
    row, now = task.row, task.standing(launch.key, job_id=job_id)
    if now is Standing.ELSEWHERE:
        return Step.RELEASE  # that scheduler may have adopted a pod that a call has made
    # To give up a launch whose worker runs would fail, or delete, a healthy task.
    runs_here = is_running(row) and now is Standing.RUNNING and launch.runs(row.hostname)
    if now is not Standing.QUEUED and not runs_here:
        return Step.FOLLOW if is_running(row) else Step.CANCEL
    if launch.creation.next_attempt.final is None:
        return Step.CREATE
    return Step.CREATE_LATER if runs_here else Step.FAIL
