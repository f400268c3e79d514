# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The tables at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from soak.growth import Growth
from soak.outcome import Outcome, TaskResult

GOOD, BAD = Text("as it should be", style="green"), Text("WRONG", style="bold red")

EXAMPLES = 5
"""How many task instances are named for each kind of mistake."""


def outcome_table(outcome: Outcome) -> Table:
    """Return what has become of the tasks."""
    table = Table(title="What has become of the tasks", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "found", "should be", ""):
        table.add_column(column, justify="right" if column else "left")
    counts = {result: len(tasks) for result, tasks in outcome.results.items()}
    for name, found, expected in (
        ("DAG runs that did not succeed", len(outcome.unsuccessful_runs), 0),
        ("tasks lost: never ended", counts[TaskResult.LOST], 0),
        ("healthy tasks failed", counts[TaskResult.FAILED], 0),
        ("retries consumed by the infrastructure", counts[TaskResult.RETRIED], 0),
        ("tasks whose code did not run exactly once", counts[TaskResult.NOT_ONCE], 0),
        ("pods left over", len(outcome.pods_left), 0),
    ):
        table.add_row(name, str(found), str(expected), GOOD if found == expected else BAD)
    table.add_section()
    for name, found in (
        ("DAG runs", len(outcome.runs)),
        ("tasks", outcome.tasks),
        ("tasks whose budget was exhausted as configured", counts[TaskResult.EXHAUSTED]),
        ("pods launched", outcome.launches),
        ("pods lost to a fault", outcome.faults.total()),
    ):
        table.add_row(name, str(found), "", "")
    return table


def growth_table(rows: Iterable[Growth]) -> Table:
    """Return what has grown, and what has not."""
    table = Table(
        title="What the scheduler needed: medians of the first and the last quarter",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        caption="In the end the executor has to hold no more than before the run.",
        caption_justify="left",
    )
    table.add_column("")
    for column in ("first", "last", "allowed", "in the end"):
        table.add_column(column, justify="right")
    table.add_column("")
    for row in rows:
        numbers = (f"{number:.0f}" for number in (row.first, row.last, row.limit, row.rest))
        table.add_row(row.name, *numbers, GOOD if row.none else BAD)
    return table


def details(outcome: Outcome, disturbances: Counter[str]) -> Group:
    """Return what happened to the pods and beside them, and which tasks went wrong."""
    lines = [f"faults of pods: {_counts(outcome.faults)}", f"disturbances:   {_counts(disturbances)}"]
    for result, tasks in outcome.wrong().items():
        lines += [f"{result}: {' '.join(map(str, task))}" for task in tasks[:EXAMPLES]]
    lines += [f"left over: {pod}" for pod in outcome.pods_left[:EXAMPLES]]
    return Group(*(Text(line) for line in lines))


def summary(outcome: Outcome, growth: Sequence[Growth]) -> Text:
    """Return the result in one line."""
    grown = [row.name for row in growth if not row.none]
    if outcome.good and not grown:
        return Text("every task did what it should, and nothing has grown", style="bold green")
    wrong = ["tasks or pods"] if not outcome.good else []
    return Text(f"not as it should be: {', '.join([*wrong, *grown])}", style="bold red")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items())) or "none"
