# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the demo prints: the table, the lines without a terminal, the summary."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from cluster_lab.faults.plan import Fault
from demo.display import View, save_picture, summary_text, task_table
from demo.outcome import TaskOutcome, summarise

GOOD = TaskOutcome(
    task_id="drained_task",
    fault=Fault.DRAIN,
    state="success",
    finished=True,
    try_number=1,
    nodes=("lab-node-1", "lab-node-2"),
    lost=True,
    code_runs=1,
    working=False,
    ran_once=True,
    seconds=61.4,
    relaunch_seconds=2.25,
)


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=132, highlight=False)


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_without_a_terminal_there_are_lines_and_the_table_once(console: Console) -> None:
    with View(console, "heading") as view:
        for second in range(11):
            view.show([replace(GOOD, state="running")], float(second))
        view.show([GOOD], 11.0)
    output = printed(console)
    assert output.count("1 running") == 3
    assert output.count("heading") == 1
    row = next(line for line in output.splitlines() if "drained_task" in line)
    assert row.split() == ["drained_task", "drain", "2", "node-1", ">", "node-2", "success", "1", "1", "61"]


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (replace(GOOD, ran_once=False, code_runs=2), "success (!)"),
        (replace(GOOD, state="failed", ran_once=False, working=True), "failed: killed"),
        (replace(GOOD, state="failed", ran_once=False, code_runs=0), "failed: never ran"),
    ],
)
def test_an_end_that_is_not_as_it_should_be_says_how(console: Console, row: TaskOutcome, shown: str) -> None:
    with View(console, "heading") as view:
        view.show([row], 0.0)
    assert shown in printed(console)


def test_in_a_terminal_the_table_is_live() -> None:
    console = Console(file=StringIO(), width=132, force_terminal=True)
    with View(console, "heading") as view:
        view.show([replace(GOOD, state="queued")], 0.0)
        view.show([GOOD], 0.5)
    assert "queued" in printed(console)
    assert "61" in printed(console)


def test_summary_of_a_good_run(console: Console) -> None:
    console.print(summary_text(summarise([GOOD])))
    output = printed(console)
    assert "1 of 1 tasks" in output
    assert "ran exactly once, to its end, in 1 of 1 tasks" in output
    assert "2.2 s median, 2.2 s longest" in output
    assert "every task did what it should" in output


def test_summary_names_what_went_wrong(console: Console) -> None:
    bad = replace(GOOD, state="failed", ran_once=False, relaunch_seconds=None)
    console.print(summary_text(summarise([bad])))
    output = printed(console)
    assert "0 of 1 tasks" in output
    assert "nothing was relaunched" in output
    assert "not what it should be: drained_task" in output


def test_a_picture_shows_the_table_and_needs_no_other_site(tmp_path: Path) -> None:
    file = tmp_path / "demo.svg"
    long = replace(
        GOOD, nodes=("lab-node-1", "lab-node-2", "lab-node-3"), fault=Fault.CONTAINER_STATUS_UNKNOWN
    )
    save_picture(
        file,
        task_table([replace(long, task_id="container_status_unknown")], "heading"),
        summary_text(summarise([GOOD])),
    )
    picture = ET.fromstring(file.read_text())
    words = " ".join(picture.itertext()).split()
    assert {"pods", "nodes", "state", "try", "ran", "sec", "success"} <= set(words)
    assert "every task did what it should" in " ".join(words)
    assert "url(" not in file.read_text().replace("url(#", "")
