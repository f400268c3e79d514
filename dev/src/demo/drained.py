# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The second act: nodes are drained under tasks that run and have no retries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console, Group

from cluster_lab.journal import JournalEvent
from demo.display import make_table, state_of
from testbed.records import EXECUTION_FAILURE_EVENT, Outcome, Run
from testbed.task_instances import FINAL_STATES
from testbed.testbed import Testbed
from testbed.waiting import wait_for

DAG_ID = "drained_nodes"
DRAINS = 2
BUDGET = 3
"""That of the DAG's tasks."""


@dataclass(frozen=True, kw_only=True)
class DrainedTask:
    """What became of a task of the second act."""

    task_id: str
    nodes: tuple[str, ...]
    """The node of each pod, in the order of the launches."""
    outcome: Outcome
    drains: int
    """How often its node was drained under it."""
    relaunches: int
    """Infrastructure retries that it was given."""

    @property
    def as_expected(self) -> bool:
        """Whether it has succeeded in its first try, having begun anew after each drain and no more."""
        found = (self.outcome.state, self.outcome.try_number, self.outcome.begun, self.outcome.ended)
        return found == ("success", 1, self.drains + 1, 1)


def drain_nodes(testbed: Testbed, run: Run, console: Console) -> list[DrainedTask]:
    """
    Play the second act and return what became of each task.

    :param run: Of its DAG, as it begins.
    :param console: Where to say what happens.
    """
    drains: Counter[str] = Counter()
    _wait_until(run, "every task works", lambda tasks: bool(tasks) and all(map(_works, tasks.values())))
    for _ in range(DRAINS):
        before = _outcomes(run)
        places = {task: _nodes(run, task)[-1] for task, outcome in before.items() if _works(outcome)}
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
    _wait_until(run, "every task has ended", lambda tasks: all(map(_ended, tasks.values())))
    return [
        DrainedTask(
            task_id=task_id,
            nodes=_nodes(run, task_id),
            outcome=outcome,
            drains=drains[task_id],
            relaunches=sum(
                entry["action"] == "relaunch" for entry in run.ledger(task_id, event=EXECUTION_FAILURE_EVENT)
            ),
        )
        for task_id, outcome in _outcomes(run).items()
    ]


def drained_text(rows: Sequence[DrainedTask], heading: str) -> Group:
    """Return the table of the second act, and its result."""
    table = make_table(
        heading, ("task", "nodes", "state"), ("try", "infrastructure retries", "retries", "begun", "ended")
    )
    for row in rows:
        nodes = " > ".join(node.removeprefix("lab-") for node in row.nodes)
        table.add_row(
            row.task_id,
            nodes,
            state_of(row.outcome.state, is_well=row.as_expected),
            str(row.outcome.try_number),
            f"{row.relaunches} of {BUDGET}",
            f"{row.outcome.retries} of {row.outcome.max_tries}",
            str(row.outcome.begun),
            str(row.outcome.ended),
        )
    lost = [row for row in rows if row.drains]
    well = sum(row.as_expected for row in lost)
    return Group(table, f"ran again         {well} of {len(lost)} tasks whose node was drained under them")


def _wait_until(run: Run, what: str, holds: Callable[[dict[str, Outcome]], bool]) -> None:
    wait_for(what, lambda: holds(_outcomes(run)), show=run.outcomes)


def _outcomes(run: Run) -> dict[str, Outcome]:
    return {key.task_id: outcome for key, outcome in run.outcomes().items()}


def _nodes(run: Run, task_id: str) -> tuple[str, ...]:
    return tuple(entry.node for entry in run.events(task_id, JournalEvent.BOUND))


def _works(outcome: Outcome) -> bool:
    return outcome.begun > outcome.ended and not _ended(outcome)


def _ended(outcome: Outcome) -> bool:
    return outcome.state in FINAL_STATES


def _settled(tasks: dict[str, Outcome], before: dict[str, Outcome], hit: Collection[str]) -> bool:
    """Tell whether each of the tasks that were hit has begun again, or ended."""
    return all(_ended(tasks[task]) or tasks[task].begun > before[task].begun for task in hit)
