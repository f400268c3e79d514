# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What became of each task instance, and whether that is what it should have been. Pure.

No task of the soak run fails by itself and no fault is its own, so there is one right outcome: it succeeds in
its first try, and its code has come to its end once. Each time that a task was cleared while it ran it has
one more try. Each time that it was cleared, or its worker was lost, its code may have begun once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cluster_lab.faults.plan import FAULTS_AT_WORK
from cluster_lab.journal import JournalEntry, JournalEvent
from testbed.code_journal import CodeRuns
from testbed.task_instances import TaskInstance


class TaskResult(StrEnum):
    """What became of a task instance; all but the first two are wrong."""

    GOOD = "succeeded in the try that it should, its code ran once"
    EXHAUSTED = "budget exhausted as configured"
    LOST = "never ended"
    FAILED = "failed"
    RETRIED = "consumed a retry"
    NOT_ONCE = "its code did not run exactly once"


@dataclass(frozen=True)
class Evidence:
    """What is known beside the database."""

    faults: Counter[tuple[str, str, str, int]]
    """The most faults that a task instance has met in a row, by its DAG, run, task and map index."""
    code: CodeRuns
    cleared: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    """How often each task instance was cleared while it ran."""
    lost: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    """How often each task instance has lost a worker that ran."""

    def code_ran_once(self, task: TaskInstance) -> bool:
        """
        Tell whether all code of a task ran to its end, and once.

        Code that was cleared or lost its worker was cut off, or has come to its end just before.
        """
        begun, ended = self.code
        runs = {run for run in begun if run.task_id == task.code_name}
        most = 1 + self.cleared[task[:4]] + self.lost[task[:4]]
        return bool(runs) and all(1 <= ended[run] <= begun[run] <= most for run in runs)


def worst_series(journal: Iterable[JournalEntry]) -> Counter[tuple[str, str, str, int]]:
    """
    Return the most faults of one budget that each task instance has met.

    Those before its start count within a phase of a try, and those at work within the try.
    """
    series = Counter(
        (_task(entry), entry.try_number, None if _is_at_work(entry) else entry.phase)
        for entry in journal
        if entry.event is JournalEvent.FAULT_INJECTED
    )
    worst: Counter[tuple[str, str, str, int]] = Counter()
    for (task, _, _), count in series.items():
        worst[task] = max(worst[task], count)
    return worst


def losses_at_work(journal: Iterable[JournalEntry]) -> Counter[tuple[str, str, str, int]]:
    """Return how often each task instance has lost a worker that ran."""
    return Counter(
        _task(entry) for entry in journal if entry.event is JournalEvent.FAULT_INJECTED and _is_at_work(entry)
    )


def _task(entry: JournalEntry) -> tuple[str, str, str, int]:
    return entry.dag_id, entry.run_id, entry.task_id, entry.map_index


def _is_at_work(entry: JournalEntry) -> bool:
    return entry.fault in FAULTS_AT_WORK


def assess(task: TaskInstance, evidence: Evidence, budget: int) -> TaskResult:
    """
    Return what became of a task instance.

    :param budget: how many relaunches a try is allowed
    """
    if not task.ended:
        return TaskResult.LOST
    if task.state != "success" or task.try_number != 1 + evidence.cleared[task[:4]]:
        if evidence.faults[task[:4]] > budget:
            return TaskResult.EXHAUSTED
        return TaskResult.FAILED if task.state != "success" else TaskResult.RETRIED
    return TaskResult.GOOD if evidence.code_ran_once(task) else TaskResult.NOT_ONCE


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of all of them."""

    results: dict[TaskResult, list[TaskInstance]]
    runs: Mapping[tuple[str, str], str | None]
    """The state of each run that was asked for, by its DAG and its id."""
    launches: int
    """How many pods reached a node."""
    faults: Counter[str]
    """How often each fault was injected."""
    pods_left: Sequence[str]
    """The pods that are still there at the end."""

    @property
    def tasks(self) -> int:
        """How many task instances there were."""
        return sum(map(len, self.results.values()))

    def wrong(self) -> dict[TaskResult, list[TaskInstance]]:
        """Return those that are not as they should be."""
        right = (TaskResult.GOOD, TaskResult.EXHAUSTED)
        return {result: tasks for result, tasks in self.results.items() if tasks and result not in right}

    @property
    def unsuccessful_runs(self) -> list[tuple[str, str]]:
        """The runs that did not succeed, without those with a task whose budget was exhausted."""
        excused = {task[:2] for task in self.results[TaskResult.EXHAUSTED]}
        return [run for run, state in self.runs.items() if state != "success" and run not in excused]

    @property
    def good(self) -> bool:
        """Whether everything is as it should be, and there was something to see."""
        something = self.results[TaskResult.GOOD] and self.faults
        return bool(something) and not (self.wrong() or self.pods_left or self.unsuccessful_runs)


def sort_out(
    tasks: Iterable[TaskInstance], evidence: Evidence, budget: int
) -> dict[TaskResult, list[TaskInstance]]:
    """Return the task instances by what became of them."""
    results: dict[TaskResult, list[TaskInstance]] = {result: [] for result in TaskResult}
    for task in tasks:
        results[assess(task, evidence, budget)].append(task)
    return results
