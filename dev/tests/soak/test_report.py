# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from io import StringIO

from rich.console import Console, RenderableType

from soak.growth import Growth
from soak.outcome import Outcome, TaskInstance, TaskResult
from soak.report import details, growth_table, outcome_table, summary

STEADY = Growth(name="threads", first=8, last=9, limit=10, rest=8)
GROWN = Growth(name="inbox", first=1, last=50, limit=12, rest=40, idle=0)
TASK = TaskInstance("dag", "run", "task", -1, "success", 1)


def outcome(*failed: TaskInstance) -> Outcome:
    results: dict[TaskResult, list[TaskInstance]] = {result: [] for result in TaskResult}
    return Outcome(
        results=results | {TaskResult.GOOD: [TASK], TaskResult.FAILED: list(failed)},
        runs={TASK[:2]: "success"},
        launches=2,
        faults=Counter(evicted=1),
        pods_left=(),
    )


def text(part: RenderableType) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def line(part: RenderableType, beginning: str) -> Sequence[str]:
    (found,) = [row for row in text(part).splitlines() if row.strip().startswith(beginning)]
    return found.split()


def test_what_is_wrong_is_marked_and_named() -> None:
    failed = TASK._replace(task_id="unlucky", state="failed")
    table = outcome_table(outcome(failed))
    assert line(table, "healthy tasks failed")[-3:] == ["1", "0", "WRONG"]
    assert line(table, "tasks lost")[-1] == "be"
    assert "failed: dag run unlucky -1 failed 1" in text(details(outcome(failed), Counter()))


def test_growth_is_marked() -> None:
    table = growth_table([STEADY, GROWN])
    assert line(table, "threads")[:5] == ["threads", "8", "9", "10", "8"]
    assert line(table, "inbox") == ["inbox", "1", "50", "12", "40", "WRONG"]


def test_the_result_in_one_line() -> None:
    assert "every task did what it should" in summary(outcome(), [STEADY]).plain
    assert summary(outcome(), [STEADY, GROWN]).plain == "not as it should be: inbox"
    assert summary(outcome(TASK), [STEADY]).plain == "not as it should be: tasks or pods"
