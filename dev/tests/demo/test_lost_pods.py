# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The result of the first act: every condition that a task has to meet, and can miss."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cluster_lab.faults.plan import Fault
from demo.display import save_picture
from demo.lost_pods import CONTROL, IN_TWO_PARTS, UNKNOWN, LostTask, row_of, summary_text, task_table
from testbed.records import Outcome

OUTCOME = Outcome(state="success", pods=2, launch_failures=1)
EVICTED = LostTask(
    task_id="evicted",
    fault=Fault.EVICTED,
    outcome=OUTCOME,
    nodes=("lab-node-1", "lab-node-2"),
    was_lost=True,
    relaunch_seconds=2.5,
)
OWN = replace(
    EVICTED,
    task_id="worker_exit",
    fault=Fault.WORKER_EXIT,
    outcome=replace(OUTCOME, try_number=2, max_tries=1),
)
UNTOUCHED = replace(
    EVICTED,
    task_id=CONTROL,
    fault=None,
    outcome=replace(OUTCOME, pods=1),
    was_lost=False,
    relaunch_seconds=None,
)
DEFERRED = replace(EVICTED, task_id=IN_TWO_PARTS, outcome=replace(OUTCOME, pods=3, begun=2, ended=2))


@pytest.mark.parametrize(
    ("good", "change"),
    [
        (EVICTED, {"state": "failed"}),
        (EVICTED, {"state": "queued"}),
        (EVICTED, {"try_number": 2}),
        (EVICTED, {"begun": 2}),
        (EVICTED, {"ended": 0}),
        (EVICTED, {"begun": 0, "ended": 0}),
        (DEFERRED, {"begun": 3}),
        (OWN, {"try_number": 1}),
        (OWN, {"state": "failed"}),
        (UNTOUCHED, {"pods": 2}),
        (UNTOUCHED, {"try_number": 2}),
    ],
)
def test_each_deviation_is_noticed(good: LostTask, change: dict[str, object]) -> None:
    assert good.as_expected
    bad = replace(good, outcome=replace(good.outcome, **change))
    assert not bad.as_expected
    assert f"not what it should be: {good.task_id}" in printed([bad])


def test_a_task_to_which_nothing_happened_shows_nothing() -> None:
    assert not replace(EVICTED, was_lost=False).as_expected


def test_a_task_that_airflow_does_not_know_yet_is_not_what_it_should_be() -> None:
    assert not row_of("evicted", Fault.EVICTED, UNKNOWN, []).as_expected


def test_a_picture_needs_no_other_site(tmp_path: Path) -> None:
    save_picture(tmp_path / "demo.svg", task_table([EVICTED], "heading"))
    drawn = (tmp_path / "demo.svg").read_text()
    assert "evicted" in drawn
    assert set(re.findall(r"https?://[^\s\"'<)]+", drawn)) <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }


def test_the_numbers_at_the_end_are_those_of_the_tasks() -> None:
    shown = printed([UNTOUCHED, EVICTED, DEFERRED, OWN])
    assert "2 of 2 tasks whose pod the infrastructure took" in shown
    assert "1 (1 expected" in shown
    assert "2.5 s median, 2.5 s longest" in shown
    assert "in 4 of 4 tasks" in shown
    (row,) = (line for line in shown.splitlines() if line.strip().startswith("evicted"))
    assert row.split() == ["evicted", "evicted", "node-1", ">", "node-2", "success", "2", "1", "1", "1"]


def printed(rows: list[LostTask]) -> str:
    console = Console(file=StringIO(), width=132, highlight=False)
    console.print(task_table(rows, "heading"), summary_text(rows))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()
