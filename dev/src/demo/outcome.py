# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What each task of the demo did, and whether that is what it should have done.

Pure: everything is read from three records, the metadata database, the lab's journal and the journal of the
user's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import median

from cluster_lab.faults.plan import Fault, FaultPlan
from cluster_lab.journal import JournalEntry, JournalEvent
from testbed.code_journal import CodeRuns
from testbed.task_instances import TaskInstance

CONTROL = "control"
"""The task that loses nothing."""


class Expectation(StrEnum):
    """What should become of a task."""

    UNTOUCHED = "one pod, no retry"
    RECOVERED = "a new pod, no retry"
    RETRIED = "one retry"


@dataclass(frozen=True)
class TaskOutcome:
    """One row of the table."""

    task_id: str
    fault: Fault | None
    state: str | None
    finished: bool
    """Whether nothing more will happen to the task instance."""
    try_number: int
    nodes: tuple[str, ...]
    """The node of each pod, in the order of the launches."""
    lost: bool
    """Whether the planned fault has happened."""
    code_runs: int
    working: bool
    """Some of its code has begun and not ended."""
    ran_once: bool
    """All of its code ran exactly once and to the end."""
    seconds: float
    """From the trigger of the run to the end of the task, or until now."""
    relaunch_seconds: float | None
    """From the loss of a pod to its successor's arrival on a node; None if there is none."""

    @property
    def expectation(self) -> Expectation:
        """What should become of this task."""
        if self.fault is None:
            return Expectation.UNTOUCHED
        # A worker that exits on its own is the task's own failure.
        return Expectation.RETRIED if self.fault is Fault.WORKER_EXIT else Expectation.RECOVERED

    @property
    def launches(self) -> int:
        """How many pods reached a node."""
        return len(self.nodes)

    @property
    def retries(self) -> int:
        """How many task retries were consumed."""
        return max(self.try_number - 1, 0)

    @property
    def as_expected(self) -> bool:
        """Whether the task ended in the way that it should, with every condition of that."""
        if self.state != "success" or not self.ran_once:
            return False
        match self.expectation:
            case Expectation.UNTOUCHED:
                return self.launches == 1 and self.retries == 0
            case Expectation.RECOVERED:
                return self.lost and self.retries == 0
            case Expectation.RETRIED:
                return self.lost and self.retries == 1


@dataclass(frozen=True)
class Summary:
    """The demo's result in numbers."""

    lost: int
    """Tasks whose pod the infrastructure took."""
    recovered: int
    """Those of them that succeeded without a retry, their code having run exactly once."""
    retries: int
    own_failures: int
    """Tasks that failed on their own: each is entitled to one retry."""
    relaunch_median: float | None
    """Seconds, None if nothing was relaunched."""
    relaunch_max: float | None
    tasks: int
    """All tasks."""
    ran_once: int
    """Tasks whose code ran exactly once and to its end."""
    unexpected: tuple[str, ...]
    """Tasks that did not do what they should."""

    @property
    def passed(self) -> bool:
        """Whether every task did what it should."""
        return not self.unexpected


@dataclass(frozen=True)
class Evidence:
    """Everything that is known about a run of the DAG."""

    tasks: Mapping[str, TaskInstance]
    """By task id."""
    journal: Sequence[JournalEntry]
    """The lab's journal of this run."""
    code: CodeRuns
    started: datetime
    """When the run was triggered."""
    now: datetime
    """The end of what has not ended."""


def outcomes(plan: FaultPlan, evidence: Evidence) -> list[TaskOutcome]:
    """
    Return a row for the control and for each task of the plan, in its order.

    :param plan: One rule for each task, whose ``task_id`` is no pattern.
    :param evidence: What is known by now.
    """
    faults: dict[str, Fault | None] = {CONTROL: None}
    faults |= {rule.task_id: rule.fault for rule in plan.rules}
    return [_outcome(task_id, fault, evidence) for task_id, fault in faults.items()]


def summarise(rows: Sequence[TaskOutcome]) -> Summary:
    """Return the numbers of a finished demo."""
    lost = [row for row in rows if row.expectation is Expectation.RECOVERED]
    relaunches = [row.relaunch_seconds for row in lost if row.relaunch_seconds is not None]
    return Summary(
        lost=len(lost),
        recovered=sum(row.as_expected for row in lost),
        retries=sum(row.retries for row in rows),
        own_failures=sum(row.expectation is Expectation.RETRIED for row in rows),
        relaunch_median=median(relaunches) if relaunches else None,
        relaunch_max=max(relaunches, default=None),
        tasks=len(rows),
        ran_once=sum(row.ran_once for row in rows),
        unexpected=tuple(row.task_id for row in rows if not row.as_expected),
    )


def _outcome(task_id: str, fault: Fault | None, evidence: Evidence) -> TaskOutcome:
    task = evidence.tasks.get(task_id) or TaskInstance("", "", task_id)
    events = [entry for entry in evidence.journal if entry.task_id == task_id]
    bound = [entry for entry in events if entry.event is JournalEvent.BOUND]
    losses = [entry for entry in events if entry.event is JournalEvent.FAULT_INJECTED]
    ended = task.end_date if task.ended and task.end_date else evidence.now
    return TaskOutcome(
        task_id=task_id,
        fault=fault,
        state=task.state,
        finished=task.ended,
        try_number=task.try_number,
        nodes=tuple(entry.node for entry in bound),
        lost=bool(losses),
        code_runs=evidence.code.times(task.code_name),
        working=evidence.code.working(task.code_name),
        ran_once=evidence.code.once(task.code_name),
        seconds=(ended - evidence.started).total_seconds(),
        relaunch_seconds=_relaunch_seconds(losses, bound),
    )


def _relaunch_seconds(losses: Sequence[JournalEntry], bound: Sequence[JournalEntry]) -> float | None:
    if not losses:
        return None
    loss = losses[0]
    successors = [entry.time for entry in bound if entry.time > loss.time and entry.uid != loss.uid]
    return (min(successors) - loss.time).total_seconds() if successors else None
