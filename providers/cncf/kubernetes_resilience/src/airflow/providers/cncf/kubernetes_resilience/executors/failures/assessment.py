# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the end of a pod means for its task instance.

Pure: the pod's end and the task instance's row go in, a verdict comes out; the executor acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow.utils.state import State, TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure


class Verdict(StrEnum):
    """What the executor does about a launch that has ended."""

    LAUNCH_FAILURE = "launch-failure"
    """The task's process never started: the policy decides."""
    REPORT = "report"
    """Tell the scheduler the state, and give the slot back."""
    RELEASE = "release"
    """Give the slot back and tell nobody: the pod says nothing about what the task instance is now."""
    KEEP = "keep"
    """Nothing has ended: the worker has started in the meantime."""
    POSTPONE = "postpone"
    """It cannot be said yet whose task instance it is."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the state to report with it, and the reason for people to read."""

    verdict: Verdict
    state: str | None = None
    why: str = ""


def judge(
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
) -> Judgement:
    """
    Judge the end of a task instance's current launch.

    :param failure: how the pod failed; None if it succeeded
    :param row: the task instance with the launch's own UUID; None if there is none any more
    :param try_number: the try that the pod was launched for
    :param job_id: this scheduler's job
    :param queued_again: whether this executor has already been handed the task instance's next phase
        (it deferred or was rescheduled by the very worker whose pod has ended)
    :param runs_here: whether a task that runs, runs in this launch's pod as far as can be told
    :param adopted_from: the dead scheduler's job, for a launch that was adopted
    :param restarting: whether the try was cleared while it ran, and waits for the end of its worker
    :param restarts_by: the scheduler's job that has it then
    """
    if queued_again:
        return Judgement(Verdict.RELEASE, why="its next phase is queued")
    owner = row.queued_by_job_id if row else restarts_by
    if owner == adopted_from is not None and adopted_from != job_id and _is_offered_again(row):
        # Airflow has not committed the adoption, and may never: what is reported now would be ignored.
        return Judgement(Verdict.POSTPONE)
    if row is None and restarting:
        # Success is what the scheduler wants to hear of a worker that has gone as it was told.
        state = TaskInstanceState.SUCCESS if failure is None else TaskInstanceState.FAILED
        return Judgement(Verdict.REPORT, state=state)
    if row is None or row.key.try_number != try_number:
        return Judgement(Verdict.RELEASE, why="the task instance was cleared or deleted")
    if row.state == TaskInstanceState.QUEUED:
        if row.queued_by_job_id != job_id:
            return Judgement(Verdict.RELEASE, why=f"scheduler job {row.queued_by_job_id} has queued it")
        return Judgement(Verdict.LAUNCH_FAILURE)
    if failure is None:
        return Judgement(Verdict.REPORT, state=row.state)
    if row.state not in (TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING):
        # The worker has reported its end. What happened to its pod afterwards does not change that; to
        # report a failure now would fail a task that waits for its trigger or its next try.
        return Judgement(Verdict.REPORT, state=row.state)
    return _judge_running(failure, row, runs_here=runs_here)


def _is_offered_again(row: TaskInstanceRow | None) -> bool:
    """Whether Airflow offers a task instance of a dead scheduler again, if nobody adopts it."""
    return row is None or row.state in State.adoptable_states


def _judge_running(failure: PodFailure, row: TaskInstanceRow, *, runs_here: bool) -> Judgement:
    if not runs_here:
        return Judgement(Verdict.RELEASE, why=f"the task runs on {row.hostname}, which is another pod")
    if failure.alive:
        return Judgement(Verdict.KEEP)
    return Judgement(Verdict.REPORT, state=TaskInstanceState.FAILED)
