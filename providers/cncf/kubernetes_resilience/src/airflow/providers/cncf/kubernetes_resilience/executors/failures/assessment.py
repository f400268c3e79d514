# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the end of a pod means for its task instance.

Pure: the pod's end and the task instance's row go in, an assessment comes out; the executor acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow.utils.state import State, TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    standing,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    HEARTBEAT_TIMEOUT,
    PodFailure,
)


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The task's process never started: the retry policies decide."""


@dataclass(frozen=True, slots=True)
class ExecutionFailed:
    """The worker has ended, or counts as lost, while its task runs: the infrastructure budget decides."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the state to the scheduler, and free the slot."""

    state: str | None


@dataclass(frozen=True, slots=True)
class Release:
    """Free the slot and report nothing: the task instance's state does not depend on this pod."""

    why: str
    leaves_pod: bool = False
    """Whether the pod stays as it is, for the scheduler that has the task instance to count its failure."""
    runs_elsewhere: bool = False
    """Whether the task runs in another pod."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing has ended: the worker has started in the meantime."""


@dataclass(frozen=True, slots=True)
class Postpone:
    """It is not known yet which scheduler has the task instance."""


Assessment = LaunchFailed | ExecutionFailed | Report | Release | Keep | Postpone


def is_pre_execution_failure(row: TaskInstanceRow | None, *, try_number: int, job_id: int | None) -> bool:
    """
    Whether a pod that has ended is a launch failure: its task instance is still queued, in the same try.

    The row alone says so: a worker that starts writes ``running`` into it before it runs any of the task's
    code. The policies say which of these failures are excluded from a relaunch.

    :param row: the task instance with the UUID that the pod was launched for; None if there is none any more
    :param try_number: that the pod was launched for
    :param job_id: this scheduler's job, which has queued it
    """
    return standing(row, try_number=try_number, job_id=job_id) is Standing.QUEUED


def assess(
    failure: PodFailure | None,
    row: TaskInstanceRow | None,
    *,
    try_number: int,
    job_id: int | None,
    queued_again: bool,
    runs_here: bool = True,
    adopted_from: int | None = None,
    restarting: bool = False,
    restarts_by: int | None = None,
) -> Assessment:
    """
    Assess the end of a task instance's current launch.

    :param failure: how the pod failed; None if it succeeded
    :param row: the task instance with the launch's own UUID; None if there is none any more
    :param try_number: the try that the pod was launched for
    :param job_id: this scheduler's job
    :param queued_again: whether this executor has already been handed the task instance's next phase
        (it deferred or was rescheduled by the very worker whose pod has ended)
    :param runs_here: whether a running task runs in this launch's pod, as far as is known
    :param adopted_from: the dead scheduler's job, for a launch that was adopted
    :param restarting: whether the try was cleared while it ran, and waits for the end of its worker
    :param restarts_by: the scheduler's job that has it then
    """
    if queued_again:
        return Release("its next phase is queued")
    owner = row.queued_by_job_id if row else restarts_by
    if owner == adopted_from is not None and adopted_from != job_id and _is_offered_again(row):
        # Airflow has not committed the adoption, and may never do so. It would ignore a report now.
        return Postpone()
    if row is None and restarting:
        # The scheduler expects success if the worker has stopped as it was told.
        return Report(TaskInstanceState.SUCCESS if failure is None else TaskInstanceState.FAILED)
    if row is None or row.key.try_number != try_number:
        return Release("the task instance was cleared or deleted")
    if is_pre_execution_failure(row, try_number=try_number, job_id=job_id):
        return LaunchFailed()
    if row.state == TaskInstanceState.QUEUED:
        why = f"scheduler job {row.queued_by_job_id} has queued it"
        return Release(why, leaves_pod=_has_failed(failure))
    return _assess_started(failure, row, job_id=job_id, runs_here=runs_here)


def _assess_started(
    failure: PodFailure | None, row: TaskInstanceRow, *, job_id: int | None, runs_here: bool
) -> Assessment:
    is_alive = failure is not None and failure.alive
    if row.state == TaskInstanceState.RUNNING and runs_here:
        is_silent = failure is not None and failure.reason == HEARTBEAT_TIMEOUT
        if is_alive and not is_silent:
            return Keep()
        if row.queued_by_job_id != job_id:
            return Release(f"scheduler job {row.queued_by_job_id} has it", leaves_pod=_has_failed(failure))
        return ExecutionFailed()
    # The worker has reported its end, unless it runs. What happened to its pod afterwards does not change
    # that; to report a failure now would fail a task that waits for its trigger or its next try.
    if failure is None or row.state not in (TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING):
        return Report(row.state)
    if not runs_here:
        return Release(f"the task runs on {row.hostname}, which is another pod", runs_elsewhere=True)
    return Keep() if is_alive else Report(TaskInstanceState.FAILED)


def _has_failed(failure: PodFailure | None) -> bool:
    # One that is alive may start beside another launch, of which this scheduler knows nothing.
    return failure is not None and not failure.alive


def _is_offered_again(row: TaskInstanceRow | None) -> bool:
    """Whether Airflow offers a task instance of a dead scheduler again, if nobody adopts it."""
    return row is None or row.state in State.adoptable_states
