# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The third act: the image registry is away while tasks without retries start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console, Group

from cluster_lab.journal import JournalEntry, JournalEvent
from demo.display import make_table, state_of
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

DAG_ID = "storm"
AWAY_FOR = timedelta(seconds=30)
OUTAGE = 3
"""After so many lost launches all others are held, until probes succeed."""
AWAY = Path(__file__).with_name("storm.yaml")
BACK = Path(__file__).with_name("faults.yaml")


@dataclass(frozen=True, kw_only=True)
class Storm:
    """What became of the tasks of the third act, by their ids."""

    outcomes: Mapping[str, Outcome]
    seconds_away: float
    """From the first launch that was lost to the registry's return."""
    seconds_after: float
    """From then to the arrival of the last pod on a node."""

    @property
    def unexpected(self) -> Sequence[str]:
        """The tasks that have not succeeded in their first try, or have not run once."""
        return [task_id for task_id, outcome in self.outcomes.items() if not _is_expected(outcome)]


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
        lambda: datetime.now(UTC) - began >= AWAY_FOR or all(task.ended for task in run.task_instances()),
        show=run.states,
    )
    testbed.lab.use(BACK)
    back = datetime.now(UTC)
    console.print("The registry is back")
    return Storm(
        outcomes=run.wait_for_all_to_end(),
        seconds_away=(back - began).total_seconds(),
        seconds_after=max(0.0, (run.all_pods()[-1].time - back).total_seconds()),
    )


def storm_text(storm: Storm, heading: str) -> Group:
    """Return the table of the third act, and its result."""
    table = make_table(heading, ("task", "state"), ("try", "pods", "retries", "ran"))
    for task_id, outcome in storm.outcomes.items():
        table.add_row(
            task_id,
            state_of(outcome.state, is_well=_is_expected(outcome)),
            str(outcome.try_number),
            str(outcome.pods),
            f"{outcome.retries} of {outcome.max_tries}",
            str(outcome.ended),
        )
    pods = sum(outcome.pods for outcome in storm.outcomes.values())
    well = len(storm.outcomes) - len(storm.unexpected)
    return Group(
        table,
        f"succeeded         {well} of {len(storm.outcomes)} tasks that started while the registry was away,"
        f" for {storm.seconds_away:.0f} s",
        f"pods              {pods}; the last one {storm.seconds_after:.0f} s after the registry's return",
    )


def _losses(run: Run) -> list[JournalEntry]:
    return [entry for entry in run.journal() if entry.event is JournalEvent.FAULT_INJECTED]


def _is_expected(outcome: Outcome) -> bool:
    return outcome == Outcome(
        state="success", pods=outcome.launch_failures + 1, launch_failures=outcome.launch_failures
    )
