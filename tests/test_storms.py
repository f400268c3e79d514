# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A registry is away for everybody: launches are held, and all tasks succeed in their first try.

The clocks are the product's: a first probe after 15 s, a second 30 s after that one has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster_lab.journal import JournalEntry, JournalEvent
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = pytest.mark.system

DEPLOYMENT = {"AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2"}
FOLDER = Path(__file__).parent / "dags" / "storms"
TASKS = 6


def test_nobody_pays_for_a_registry_that_is_away(testbed: Testbed) -> None:
    testbed.lab.use(FOLDER / "faults.yaml")
    runs = [testbed.trigger("storm_one"), testbed.trigger("storm_two")]
    wait_for_failed_probes(runs, 1)
    elsewhere = testbed.trigger("elsewhere")
    assert elsewhere.wait_for_end("task") == Outcome(state="success", pods=1, launch_failures=0)
    assert {state for run in runs for state in run.states().values()} == {"queued"}
    testbed.lab.use(FOLDER / "back.yaml")
    expect(runs)


@pytest.mark.long
def test_nor_if_the_scheduler_is_killed_meanwhile(testbed: Testbed) -> None:
    testbed.lab.use(FOLDER / "faults.yaml")
    runs = [testbed.trigger("storm_killed")]
    wait_for_failed_probes(runs, 1)
    testbed.schedulers.kill_long_ago(testbed.schedulers.alive[0])
    testbed.schedulers.start()
    wait_for_failed_probes(runs, 2)
    testbed.lab.use(FOLDER / "back.yaml")
    expect(runs)


def rows(runs: Sequence[Run]) -> list[list[str]]:
    """Return the rules by which failures were decided, for each task."""
    return [
        [str(row["rule"]) for row in run.ledger(f"task_{number}")] for run in runs for number in range(TASKS)
    ]


def wait_for_failed_probes(runs: Sequence[Run], count: int) -> None:
    """Wait until each task has lost its first launch, and so many probes have failed."""

    def failed() -> bool:
        found = rows(runs)
        return all(found) and sum(map(len, found)) >= len(found) + count

    wait_for(f"probe {count} has failed", failed, show=lambda: rows(runs))


def expect(runs: Sequence[Run]) -> None:
    """Expect that all tasks succeed at no cost, and that there was one probe at a time."""
    for run in runs:
        for outcome in run.wait_for_all_to_end().values():
            failures = outcome.launch_failures
            assert outcome == Outcome(state="success", pods=failures + 1, launch_failures=failures)
    # Two may fail before it is known that they are not alone.
    assert sum(rule != "outage" for found in rows(runs) for rule in found) <= 2
    assert most_probes(sorted((entry for run in runs for entry in run.journal()), key=lambda e: e.time)) == 1


def most_probes(journal: Sequence[JournalEntry]) -> int:
    """Return how many launches but the first of each task were there at a time in the outage."""
    last = max(n for n, entry in enumerate(journal) if entry.event is JournalEvent.FAULT_INJECTED)
    there: set[str] = set()
    most = 0
    for entry in journal[: last + 1]:
        if entry.launch > 1 and entry.event is JournalEvent.BOUND:
            there.add(entry.uid)
        elif entry.event is JournalEvent.DELETED:
            there.discard(entry.uid)
        most = max(most, len(there))
    return most
