# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Judges launches by their situation and by their task instance's row. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import EarlierFailures, Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    TaskSnapshot,
    awaits_launch,
    is_running,
    standing,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import HEARTBEAT_TIMEOUT, PodFailure
from airflow_resilience.context import ExecutionContext
from airflow_resilience.decision import Action
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.retry_policy.evidence import Phase


class Situation(Enum):
    """Reasons for reading the row of a launch's task instance, by pod and clock alone."""

    ENDED = auto()
    """The pod has ended, or was given up."""
    UNCHECKED = auto()
    """The worker has not started, and the row was not read for a while. Airflow does not notify an executor
    of a task instance that a user has cleared, marked or deleted."""
    TOKEN_EXPIRED = auto()
    """The worker has not started, and its token has expired in an outage: it cannot start the task."""
    RELABELLED = auto()
    """The pod has the label of another scheduler. The official executor labels what it adopts before that is
    committed."""
    CREATION_DUE = auto()
    """A create call has failed, and what follows is due."""
    LAUNCH_DUE = auto()
    """The launch has waited, and is due: no earlier pod of its task instance keeps it waiting."""


class Asked(NamedTuple):
    """A launch whose task instance's row is read."""

    launch: Launch
    situation: Situation


class Step(Enum):
    """Steps for a launch whose pod has not ended."""

    WAIT = auto()
    CANCEL = auto()
    """The launch is not wanted any more: the slot is freed, and the pod is deleted unless it has started."""
    FOLLOW = auto()
    """The launch is cancelled, and the task runs in another pod."""
    REPLACE = auto()
    """The pod is deleted unless it has started, and another one is created."""
    RELABEL = auto()
    """The pod gets this scheduler's label again."""
    CREATE = auto()
    """The pod is asked for again."""
    CREATE_LATER = auto()
    """The pod is asked for again later: the worker runs, so a call without an answer was carried out."""
    HAND_BACK = auto()
    """The scheduler queues the task instance again, in the same try: its job is not known here."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the state to the scheduler, and free the slot."""

    state: str | None


@dataclass(frozen=True, slots=True)
class Release:
    """Free the slot and report nothing: the task instance's state does not depend on this pod."""

    why: str
    leaves_pod: bool = False
    """Whether the pod stays as it is, for the scheduler that has the task instance to see how it ended."""
    runs_elsewhere: bool = False
    """Whether the task runs in another pod."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing has ended: the worker has started in the meantime."""


@dataclass(frozen=True, slots=True)
class Build:
    """Build the pod, and ask for it."""

    earlier: EarlierFailures = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fail:
    """Report a failure whose pod cannot start any more, and free the slot."""

    why: str
    context: ExecutionContext | None = None
    """The failure for callbacks and the audit log; None if the ledger has the context."""
    entry: LedgerEntry | None = None
    """The decision; None if the ledger has none."""


Assessment = Phase | Report | Release | Keep
"""
What follows for a launch that has ended. A phase stands for a worker that has failed in it, or counts as
lost: the retry policies decide, of a running task by its budget.
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """A worker has failed, and the decision about it is in the ledger."""

    entry: LedgerEntry
    failure: PodFailure
    """Failure of the launch, by its pod and by other known facts."""
    by_rule: bool = True
    """Whether a rule was asked, which is counted and explained."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A committed decision about a launch."""

    launch: Launch
    outcome: Decided | Report | Release | Keep | Build | Fail | Step
    situation: Situation = Situation.ENDED

    @property
    def entry(self) -> LedgerEntry | None:
        """Entry of the ledger; None without one."""
        return self.outcome.entry if isinstance(self.outcome, Decided) else None

    @property
    def failure(self) -> PodFailure | None:
        """Failure of the launch; None if its pod succeeded."""
        return self.outcome.failure if isinstance(self.outcome, Decided) else self.launch.failure

    @property
    def leaves_pod(self) -> bool:
        """
        Whether its pod stays as it is.

        The pod has not ended, or only Airflow reports an end, or another scheduler has its task instance.
        """
        if isinstance(self.outcome, Release) and self.outcome.leaves_pod:
            return True
        if self.entry and self.entry.decision.action is Action.RELAUNCH:
            return False
        is_silent = self.failure is not None and self.failure.reason == HEARTBEAT_TIMEOUT
        return is_silent or isinstance(self.outcome, Keep)


def judge(
    situation: Situation,
    launch: Launch,
    task: TaskSnapshot,
    *,
    job_id: int | None,
    queued_again: bool = False,
    earlier: EarlierFailures | None = None,
) -> Step | Assessment | Build | Fail:
    """
    Return what follows for a current launch.

    :param queued_again: whether this executor has already been handed the task instance's next phase
    :param earlier: known of a launch that is due
    """
    match situation:
        case Situation.ENDED:
            return assess(launch, task, job_id=job_id, queued_again=queued_again)
        case Situation.RELABELLED:
            return Step.RELABEL if task.owner is not None and task.owner == job_id else _leave(task)
        case Situation.CREATION_DUE if queued_again:
            return Step.CANCEL  # a call was carried out, and the worker has reported
        case Situation.CREATION_DUE:
            return _judge_creation(launch, task, job_id)
        case Situation.LAUNCH_DUE:
            return _judge_due(launch, task, earlier, job_id)
        case _:
            return _judge_unstarted(situation, task, job_id)


def _leave(task: TaskSnapshot) -> Release:
    """Leave a pod before its end to the scheduler that has its task instance."""
    owner = "no scheduler" if task.owner is None else f"scheduler job {task.owner}"
    return Release(f"{owner} has it", leaves_pod=True)


def _judge_unstarted(situation: Situation, task: TaskSnapshot, job_id: int | None) -> Step | Release:
    match task.standing(job_id):
        case Standing.GONE | Standing.OVER:
            return Step.CANCEL
        case Standing.ELSEWHERE:
            # That scheduler may have adopted this very pod, before its label or our watch says so.
            return _leave(task)
        case Standing.QUEUED if situation is Situation.TOKEN_EXPIRED:
            return Step.REPLACE
    return Step.WAIT


def _judge_creation(launch: Launch, task: TaskSnapshot, job_id: int | None) -> Step | Assessment:
    if launch.creation is None or launch.creation.next_attempt is None:
        raise AssertionError("a create call that has failed is followed by something")
    now = task.standing(job_id)
    if now is Standing.ELSEWHERE:
        return _leave(task)  # that scheduler may have adopted a pod that a call has made
    # To give up a launch whose worker runs would fail, or delete, a healthy task. If its task was cleared,
    # Airflow waits for the end of the pod that a call without an answer may have made.
    may_run_here = runs_in_its_pod(launch, task.row, job_id=job_id) or (
        now is Standing.RESTARTED and launch.creation.was_unclear
    )
    if now is not Standing.QUEUED and not may_run_here:
        return Step.FOLLOW if is_running(task.row) else Step.CANCEL
    if launch.creation.next_attempt.final is None:
        return Step.CREATE
    return Step.CREATE_LATER if may_run_here else Phase.LAUNCH


def _judge_due(
    launch: Launch, task: TaskSnapshot, earlier: EarlierFailures | None, job_id: int | None
) -> Step | Release | Build | Fail:
    if launch.waiting is None or earlier is None:
        raise AssertionError("a launch that is due waits, and the failures before it were read")
    match task.standing(job_id):
        case Standing.ELSEWHERE:
            return _leave(task)
        case Standing.RUNNING:
            return Step.FOLLOW
        case Standing.GONE | Standing.RESTARTED | Standing.OVER | Standing.HELD_UP:
            return Step.CANCEL
    if launch.is_handed_back:
        return Step.HAND_BACK
    last = earlier.histories.launches.last
    failed = last if last and last.decision.action is not Action.RELAUNCH else None
    if launch.waiting.fails:
        return Fail(launch.waiting.fails, launch.waiting.context, failed)
    if failed:
        # The scheduler that has decided has died before its report. A reported failure does not come here
        # again: the next try has another number, and a cleared task instance has another UUID.
        why = f"Pod {failed.worker_name} failed before the task's process had started: reason {failed.reason}"
        return Fail(f"{why}; {failed.decision.explanation}", entry=failed)
    return Build(earlier)


def runs_in_its_pod(launch: Launch, row: TaskInstanceRow | None, *, job_id: int | None) -> bool:
    """Return whether the task is this scheduler's, and runs in the pod of a launch."""
    is_ours = standing(row, launch.key, job_id=job_id) is Standing.RUNNING
    return is_ours and is_running(row) and launch.runs(row.hostname)


def assess(launch: Launch, task: TaskSnapshot, *, job_id: int | None, queued_again: bool) -> Assessment:
    """
    Assess the end of a task instance's current launch.

    :param queued_again: whether this executor has already been handed the task instance's next phase
        (it deferred or was rescheduled by the very worker whose pod has ended)
    """
    if queued_again:
        return Release("its next phase is queued")
    row = task.row
    if task.restarting:
        return _assess_cleared(launch, task.owner, job_id=job_id)
    if row is None or row.key.try_number != launch.key.try_number:
        return Release("the task instance was cleared or deleted")
    if awaits_launch(row, launch.key, job_id=job_id):
        return Phase.LAUNCH
    if row.state == TaskInstanceState.QUEUED:
        why = f"scheduler job {row.queued_by_job_id} has queued it"
        # A pod that is alive may start beside another launch, of which this scheduler knows nothing.
        return Release(why, leaves_pod=launch.failure is not None and not _is_alive(launch))
    return _assess_started(launch, row, job_id=job_id)


def _assess_cleared(launch: Launch, owner: int | None, *, job_id: int | None) -> Assessment:
    # A pod that has not started never will: its task instance is gone.
    if launch.has_started and _runs_on(launch):
        return Keep()
    if owner != job_id:
        return Release(f"scheduler job {owner} has it", leaves_pod=not _is_alive(launch))
    # The scheduler expects success of a worker that has stopped on request.
    return Report(TaskInstanceState.SUCCESS if launch.failure is None else TaskInstanceState.FAILED)


def _assess_started(launch: Launch, row: TaskInstanceRow, *, job_id: int | None) -> Assessment:
    runs_here = launch.runs(row.hostname)
    if row.state == TaskInstanceState.RUNNING and runs_here:
        if _runs_on(launch):
            return Keep()
        if row.queued_by_job_id != job_id:
            why = f"scheduler job {row.queued_by_job_id} has it"
            return Release(why, leaves_pod=not _is_alive(launch))
        return Phase.EXECUTION
    # The worker has reported its end, unless it runs. What happened to its pod afterwards does not change
    # that; to report a failure now would fail a task that waits for its trigger or its next try.
    if launch.failure is None or row.state not in (TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING):
        return Report(row.state)
    if not runs_here:
        return Release(f"the task runs on {row.hostname}, which is another pod", runs_elsewhere=True)
    return Keep() if _is_alive(launch) else Report(TaskInstanceState.FAILED)


def _is_alive(launch: Launch) -> bool:
    """Return whether a launch was given up whose pod runs on, or may start."""
    return launch.failure is not None and launch.failure.alive


def _runs_on(launch: Launch) -> bool:
    """Return whether the worker of such a launch has reported to Airflow."""
    failure = launch.failure
    return failure is not None and failure.alive and failure.reason != HEARTBEAT_TIMEOUT
