# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The second act: nodes are drained under tasks that run and have no retries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial

from rich.console import Console, Group

from cluster_lab.journal import JournalEvent
from demo.display import Row, make_table
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

DAG_ID = "drained_nodes"
DRAINS = 2


def drain_nodes(testbed: Testbed, run: Run, console: Console) -> list[Row]:
    """
    Play the second act and return what became of each task.

    :param run: Of its DAG, as it begins.
    :param console: Where to say what happens.
    """
    drains: Counter[str] = Counter()
    _wait_until(run, "every task works", lambda tasks: {task.works for task in tasks.values()} == {True})
    for _ in range(DRAINS):
        before = run.by_task()
        places = {task: _nodes(run, task)[-1] for task, outcome in before.items() if outcome.works}
        if not places:
            break  # the official executor has failed them all
        ((node, _),) = Counter(places.values()).most_common(1)
        hit = [task for task, place in places.items() if place == node]
        drains.update(hit)
        console.print(f"{node} is drained, and {len(hit)} tasks run on it")
        testbed.cluster.cordon(node)
        try:
            for task in hit:
                testbed.cluster.evict(run.pods(task)[-1])
            settled = partial(_settled, before=before, hit=hit)
            _wait_until(run, f"what ran on {node} runs again, or has ended", settled)
        finally:
            testbed.cluster.cordon(node, unschedulable=False)
    run.release()
    return [
        Row(
            task_id=task_id,
            nodes=_nodes(run, task_id),
            outcome=outcome,
            begun=drains[task_id] + 1,
            fits=outcome.pods == drains[task_id] + 1,
        )
        for task_id, outcome in run.wait_for_all_to_end().items()
    ]


def drained_text(rows: Sequence[Row], heading: str) -> Group:
    """Return the table of the second act, and its result."""
    table = make_table(
        heading, rows, ("nodes",), ("try", "infrastructure retries", "retries", "begun", "ended")
    )
    lost = [row for row in rows if row.begun > 1]
    well = sum(row.as_expected for row in lost)
    return Group(table, f"ran again         {well} of {len(lost)} tasks whose node was drained under them")


def _wait_until(run: Run, what: str, holds: Callable[[dict[str, Outcome]], bool]) -> None:
    wait_for(what, lambda: holds(run.by_task()), show=run.outcomes)


def _nodes(run: Run, task_id: str) -> list[str]:
    return [entry.node for entry in run.events(task_id, JournalEvent.BOUND)]


def _settled(tasks: dict[str, Outcome], before: dict[str, Outcome], hit: Collection[str]) -> bool:
    """Tell whether each of the tasks that were hit has begun again, or ended."""
    return all(tasks[task].has_ended or tasks[task].begun > before[task].begun for task in hit)
