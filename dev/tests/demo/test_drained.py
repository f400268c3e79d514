# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the second act shows."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from demo.drained import DrainedTask, drained_text
from testbed.records import Outcome

OUTCOME = Outcome(state="success", pods=3, begun=3, ended=1, launch_failures=0, execution_failures=2)
GOOD = DrainedTask(
    task_id="report_1",
    nodes=("lab-node-1", "lab-node-2", "lab-node-3"),
    outcome=OUTCOME,
    drains=2,
    relaunches=2,
)
SPARED = DrainedTask(
    task_id="report_2",
    nodes=("lab-node-3",),
    outcome=replace(OUTCOME, begun=1, execution_failures=0),
    drains=0,
    relaunches=0,
)


def test_both_budgets_are_shown() -> None:
    console = Console(file=StringIO(), width=132, highlight=False)
    console.print(drained_text([GOOD, SPARED], "heading"))
    assert isinstance(console.file, StringIO)
    output = console.file.getvalue()
    row = next(line for line in output.splitlines() if "report_1" in line)
    shown = ["report_1", "node-1", ">", "node-2", ">", "node-3", "success", "1"]
    assert row.split() == [*shown, "2", "of", "3", "0", "of", "0", "3", "1"]
    assert "1 of 1 tasks whose node was drained under them" in output


@pytest.mark.parametrize(
    "outcome",
    [
        replace(OUTCOME, state="failed", begun=1, ended=0),
        replace(OUTCOME, try_number=2),
        replace(OUTCOME, begun=4),
        replace(OUTCOME, ended=2),
    ],
)
def test_what_is_not_as_it_should_be(outcome: Outcome) -> None:
    assert GOOD.as_expected
    assert SPARED.as_expected
    assert not replace(GOOD, outcome=outcome).as_expected
