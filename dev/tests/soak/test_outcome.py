# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cluster_lab.journal import JournalEntry, JournalEvent
from soak.outcome import (
    Evidence,
    Outcome,
    TaskResult,
    assess,
    losses_at_work,
    sort_out,
    worst_series,
)
from testbed.code_journal import CodeRun, CodeRuns
from testbed.task_instances import TaskInstance

BUDGET = 2
TASK = TaskInstance("dag", "run", "task", -1, "success", 1)
NAME = TASK.code_name


def evidence(*, begun: int = 1, ended: int = 1, faults: int = 0, cleared: int = 0, lost: int = 0) -> Evidence:
    run = CodeRun(NAME, "execute")
    code = CodeRuns(Counter({run: begun}), Counter({run: ended}))
    return Evidence(
        Counter({TASK[:4]: faults}), code, Counter({TASK[:4]: cleared}), Counter({TASK[:4]: lost})
    )


def entry(
    event: JournalEvent, *, try_number: int = 1, phase: str = "initial", fault: str = "evicted"
) -> JournalEntry:
    return JournalEntry(
        time=datetime(2026, 1, 1, tzinfo=UTC),
        event=event,
        namespace="default",
        pod="pod",
        uid="uid",
        node="node",
        dag_id="dag",
        task_id="task",
        run_id="run",
        map_index=-1,
        try_number=try_number,
        phase=phase,
        launch=1,
        fault=fault,
    )


@pytest.mark.parametrize(
    ("task", "seen", "result"),
    [
        (TASK, evidence(), TaskResult.GOOD),
        (TASK, evidence(faults=BUDGET), TaskResult.GOOD),
        (TASK._replace(state="queued"), evidence(), TaskResult.LOST),
        (TASK._replace(state=None), evidence(faults=9), TaskResult.LOST),
        (TASK._replace(state="failed"), evidence(faults=BUDGET), TaskResult.FAILED),
        (TASK._replace(state="upstream_failed"), evidence(), TaskResult.FAILED),
        (TASK._replace(state="failed"), evidence(faults=BUDGET + 1), TaskResult.EXHAUSTED),
        (TASK._replace(try_number=2), evidence(faults=BUDGET + 1), TaskResult.EXHAUSTED),
        (TASK._replace(try_number=2), evidence(), TaskResult.RETRIED),
        (TASK, evidence(begun=2, ended=2), TaskResult.NOT_ONCE),
        (TASK, evidence(begun=2), TaskResult.NOT_ONCE),
        (TASK, evidence(ended=0), TaskResult.NOT_ONCE),
        (TASK, evidence(begun=0, ended=0), TaskResult.NOT_ONCE),
        # Its worker was lost: its code was cut off, or came to its end a moment before.
        (TASK, evidence(begun=2, faults=1, lost=1), TaskResult.GOOD),
        (TASK, evidence(begun=2, ended=2, faults=1, lost=1), TaskResult.GOOD),
        (TASK, evidence(faults=1, lost=1), TaskResult.GOOD),
        (TASK, evidence(begun=3, faults=1, lost=1), TaskResult.NOT_ONCE),
        (TASK._replace(try_number=2), evidence(begun=2, faults=1, lost=1), TaskResult.RETRIED),
        (TASK._replace(state="failed"), evidence(ended=0, faults=1, lost=1), TaskResult.FAILED),
        # Cleared while it ran: its code was cut off, or came to its end a moment before.
        (TASK._replace(try_number=2), evidence(begun=2, cleared=1), TaskResult.GOOD),
        (TASK._replace(try_number=2), evidence(begun=2, ended=2, cleared=1), TaskResult.GOOD),
        (TASK._replace(try_number=2), evidence(cleared=1), TaskResult.GOOD),
        (TASK._replace(try_number=2), evidence(begun=3, ended=2, cleared=1), TaskResult.NOT_ONCE),
        (TASK._replace(try_number=2), evidence(begun=2, ended=0, cleared=1), TaskResult.NOT_ONCE),
        (TASK._replace(try_number=3), evidence(begun=2, cleared=1), TaskResult.RETRIED),
        (TASK, evidence(cleared=1), TaskResult.RETRIED),
        (TASK._replace(try_number=2, state="failed"), evidence(begun=2, cleared=1), TaskResult.FAILED),
        (TASK._replace(try_number=2, state="restarting"), evidence(cleared=1), TaskResult.LOST),
    ],
)
def test_a_task_instance_is_judged(task: TaskInstance, seen: Evidence, result: TaskResult) -> None:
    assert assess(task, seen, BUDGET) is result


def test_faults_count_within_one_phase_of_one_try() -> None:
    fault = JournalEvent.FAULT_INJECTED
    journal = [
        entry(JournalEvent.BOUND),
        entry(fault),
        entry(fault),
        entry(fault, phase="resume"),
        entry(fault, try_number=2),
    ]
    assert worst_series(journal) == {TASK[:4]: 2}
    assert losses_at_work(journal) == {}


def test_losses_at_work_have_a_budget_of_their_own_for_the_whole_try() -> None:
    fault = JournalEvent.FAULT_INJECTED
    journal = [
        entry(fault),
        entry(fault),
        entry(fault, fault="kill-running"),
        entry(fault, fault="node-lost-running", phase="resume"),
        entry(fault, fault="kill-running", phase="resume"),
        entry(JournalEvent.BOUND, fault="kill-running"),
    ]
    assert worst_series(journal) == {TASK[:4]: 3}
    assert losses_at_work(journal) == {TASK[:4]: 3}


GOOD = Outcome(
    results=sort_out([TASK], evidence(), BUDGET),
    runs={TASK[:2]: "success"},
    launches=2,
    faults=Counter(evicted=1),
    pods_left=(),
)


def test_a_good_outcome() -> None:
    assert GOOD.good
    assert GOOD.tasks == 1
    assert GOOD.wrong() == {}


@pytest.mark.parametrize(
    "outcome",
    [
        replace(GOOD, pods_left=("pod",)),
        replace(GOOD, runs={TASK[:2]: "running"}),
        replace(GOOD, runs={TASK[:2]: None}),
        replace(GOOD, faults=Counter()),
        replace(GOOD, results=sort_out([], evidence(), BUDGET)),
        replace(GOOD, results=sort_out([TASK, TASK._replace(state="failed")], evidence(), BUDGET)),
    ],
)
def test_a_bad_outcome(outcome: Outcome) -> None:
    assert not outcome.good


def test_a_run_whose_task_exhausted_its_budget_is_excused() -> None:
    exhausted = TaskInstance("dag", "run-2", "task", -1, "failed", 2)
    seen = evidence()
    seen.faults[exhausted[:4]] = BUDGET + 1
    runs = {TASK[:2]: "success", exhausted[:2]: "failed"}
    outcome = replace(GOOD, results=sort_out([TASK, exhausted], seen, BUDGET), runs=runs)
    assert outcome.good
    assert not outcome.wrong()
