# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A registry or a quota is away for everybody: launches are held, and all tasks succeed in their first try. A
node is bad.

The clocks are the product's: a probe 15 s after the one before has failed. An outage of the registry is
the third act of the demo too, which does not look at the probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster_lab.journal import JournalEntry, JournalEvent
from testbed.records import UNTOUCHED, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = pytest.mark.system

FOLDER = Path(__file__).parent / "dags" / "storms"
TASKS = 6


@pytest.mark.long
def test_nobody_pays_for_a_registry_that_is_away(testbed: Testbed) -> None:
    testbed.lab.use(FOLDER / "faults.yaml")
    runs = [testbed.trigger("storm_one")]
    first = wait_for_first_failures(runs)
    # Its tasks are held before their first launch.
    runs.append(testbed.trigger("storm_two"))
    wait_for_failures(runs, first + 1)
    elsewhere = testbed.trigger("elsewhere")
    assert elsewhere.wait_for_end("task") == UNTOUCHED
    assert {state for run in runs for state in run.states().values()} == {"queued"}
    testbed.lab.use(FOLDER / "back.yaml")
    expect(runs)


@pytest.mark.long
def test_nor_if_the_scheduler_is_killed_meanwhile(testbed: Testbed) -> None:
    testbed.lab.use(FOLDER / "faults.yaml")
    runs = [testbed.trigger("storm_killed")]
    first = wait_for_first_failures(runs)
    wait_for_failures(runs, first + 1)
    testbed.schedulers.kill_long_ago(testbed.schedulers.alive[0])
    testbed.schedulers.start()
    wait_for_failures(runs, first + 2)
    testbed.lab.use(FOLDER / "back.yaml")
    expect(runs)


@pytest.mark.long
@pytest.mark.control_plane
def test_nobody_pays_for_a_quota_that_is_used_up(testbed: Testbed) -> None:
    others = testbed.trigger("uses_quota")
    others.wait_for_code("task")
    with testbed.cluster.quota(pods=1):
        run = testbed.trigger("no_quota")
        wait_for_failures([run], wait_for_first_failures([run]) + 1)
    for outcome in run.wait_for_all_to_end().values():
        assert outcome == Outcome(state="success", pods=1, launch_failures=outcome.launch_failures)
    assert sum(rule != "outage" for found in rows([run]) for rule in found) <= 2
    others.release()


def test_a_bad_node_is_met_by_two_tasks_at_most(testbed: Testbed) -> None:
    testbed.lab.use(FOLDER / "faults.yaml")
    run = testbed.trigger("sick_node")
    outcomes = run.wait_for_all_to_end().values()
    assert {outcome.state for outcome in outcomes} == {"success"}
    assert sum(outcome.launch_failures > 0 for outcome in outcomes) <= 2


def rows(runs: Sequence[Run]) -> list[list[str]]:
    """Return the rules by which failures were decided, for each task."""
    return [
        [str(row["rule"]) for row in run.ledger(f"task_{number}")] for run in runs for number in range(TASKS)
    ]


def wait_for_first_failures(runs: Sequence[Run]) -> int:
    """Wait until each task has lost a launch; return how many are lost. Those that follow are probes."""
    lost = wait_for(
        "each task has lost a launch", lambda: all(found := rows(runs)) and found, show=lambda: rows(runs)
    )
    return sum(map(len, lost))


def wait_for_failures(runs: Sequence[Run], count: int) -> None:
    """Wait until so many launches are lost."""
    wait_for(
        f"{count} launches are lost",
        lambda: sum(map(len, rows(runs))) >= count,
        show=lambda: rows(runs),
    )


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
    """Return how many launches were there at a time of those that were made in the outage."""
    last = max(n for n, entry in enumerate(journal) if entry.event is JournalEvent.FAULT_INJECTED)
    there: set[str] = set()
    most = 0
    for entry in journal[: last + 1]:
        was_held = entry.launch > 1 or entry.dag_id == "storm_two"
        if was_held and entry.event is JournalEvent.BOUND:
            there.add(entry.uid)
        elif entry.event is JournalEvent.DELETED:
            there.discard(entry.uid)
        most = max(most, len(there))
    return most
