# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the end of a pod means for its task instance.

Pure: the pod's end and the task instance's row go in, a verdict comes out; the executor acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.failure import PodFailure

_UNIQUE_SUFFIX_LENGTH = 9
"""A dash and eight random characters end the name of each worker pod."""


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
    pod_name: str,
    try_number: int,
    job_id: int | None,
    queued_again: bool,
    restarting: bool = False,
) -> Judgement:
    """
    Judge the end of a task instance's current launch.

    :param failure: how the pod failed; None if it succeeded
    :param row: the task instance with the launch's own UUID; None if there is none any more
    :param pod_name: name of the launch's pod
    :param try_number: the try that the pod was launched for
    :param job_id: this scheduler's job
    :param queued_again: whether this executor has already been handed the task instance's next phase
        (it deferred or was rescheduled by the very worker whose pod has ended)
    :param restarting: whether the try was cleared while it ran, and waits for the end of its worker
    """
    if queued_again:
        return Judgement(Verdict.RELEASE, why="its next phase is queued")
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
    if runs_in_sibling(row.hostname, pod_name):
        return Judgement(Verdict.RELEASE, why=f"pod {row.hostname} of an earlier launch runs the task")
    if failure.alive:
        return Judgement(Verdict.KEEP)
    return Judgement(Verdict.REPORT, state=TaskInstanceState.FAILED)


def runs_in_sibling(hostname: str | None, pod_name: str) -> bool:
    """
    Whether the worker that holds the task runs in another pod of the same task.

    The first worker to report wins the start, also if its pod was superseded (a partitioned node). The
    pod's name is its host name unless ``[core] hostname_callable`` says otherwise; a host name that is
    not like a sibling's name says nothing. A name that a pod override fixes is the first launch's as it is,
    and that of later ones with a suffix.
    """
    name, stem = (hostname or "").split(".")[0], pod_name[:-_UNIQUE_SUFFIX_LENGTH]
    return name != pod_name and stem != "" and stem in (name, name[:-_UNIQUE_SUFFIX_LENGTH])
