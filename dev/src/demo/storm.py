# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The third act: the image registry is away while tasks without retries start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group

from cluster_lab.journal import JournalEntry, JournalEvent
from demo.display import Row, make_table
from testbed.records import FINAL_STATES, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

DAG_ID = "storm"
AWAY_FOR = timedelta(seconds=30)
OUTAGE = 3
"""After so many lost launches all others are held, until probes succeed."""
AWAY = Path(__file__).with_name("storm.yaml")
BACK = Path(__file__).with_name("faults.yaml")


class Storm(NamedTuple):
    """What became of the tasks of the third act."""

    rows: list[Row]
    seconds_away: float
    """From the first launch that was lost to the registry's return."""
    seconds_after: float
    """From then to the arrival of the last pod on a node."""


def weather(testbed: Testbed, console: Console) -> Storm:
    """
    Play the third act, and return what became of each task.

    :param console: Where to say what happens.
    """
    testbed.lab.use(AWAY)
    run = testbed.trigger(DAG_ID)
    wait_for(f"{OUTAGE} launches are lost", lambda: len(_losses(run)) >= OUTAGE, show=run.states)
    began = _losses(run)[0].time
    console.print("Launches are lost, and the registry stays away")
    wait_for(
        f"the registry is away for {AWAY_FOR.seconds} s",
        lambda: datetime.now(UTC) - began >= AWAY_FOR or FINAL_STATES.issuperset(run.states().values()),
        show=run.states,
    )
    testbed.lab.use(BACK)
    back = datetime.now(UTC)
    console.print("The registry is back")
    rows = [
        Row(task_id=task_id, outcome=outcome, fits=outcome.pods == outcome.launch_failures + 1)
        for task_id, outcome in run.wait_for_all_to_end().items()
    ]
    after = (run.all_pods()[-1].time - back).total_seconds()
    return Storm(rows, (back - began).total_seconds(), max(0.0, after))


def storm_text(storm: Storm, heading: str) -> Group:
    """Return the table of the third act, and its result."""
    table = make_table(heading, storm.rows, (), ("try", "pods", "retries", "ran"))
    pods = sum(row.outcome.pods for row in storm.rows)
    well = sum(row.as_expected for row in storm.rows)
    return Group(
        table,
        f"succeeded         {well} of {len(storm.rows)} tasks that started while the registry was away,"
        f" for {storm.seconds_away:.0f} s",
        f"pods              {pods}; the last one {storm.seconds_after:.0f} s after the registry's return",
    )


def _losses(run: Run) -> list[JournalEntry]:
    return [entry for entry in run.journal() if entry.event is JournalEvent.FAULT_INJECTED]
