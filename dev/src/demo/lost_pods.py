# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The first act: each task loses its first pod, in another way, before its process starts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cluster_lab.faults.plan import Fault, FaultRule, load_plan
from cluster_lab.journal import JournalEntry, JournalEvent
from cluster_lab.managed_process import ProcessError
from demo.display import Row, View, make_table
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT

DAG_ID = "lost_pods"
PLAN = Path(__file__).with_name("faults.yaml")

CONTROL = "control"
"""The task that loses nothing."""

IN_TWO_PARTS = "deferred"
"""The task whose code has two parts, each in a pod of its own."""

UNKNOWN = Outcome(state=None, pods=0, begun=0, ended=0, launch_failures=0)
"""Of a task that Airflow does not know yet."""

TWO_HALVES = (Fault.UNKNOWN_THEN_PODGC, Fault.FAILED_THEN_CLEANUP)
"""Faults whose pods are removed some time after they have failed."""

REFRESH = 0.5
"""Seconds."""

UPSTREAM_PATIENCE = 90.0
"""Seconds in which no task begins or ends, after which the official executor has lost the rest of them."""


def lose_pods(testbed: Testbed, view: View, heading: str, *, upstream: bool) -> list[Row]:
    """
    Play the first act, and return what became of each task.

    The tasks work until the executor has listed and watched all pods anew, and so has seen each dead pod for
    a second time beside its healthy successor.

    :param view: Where to show it.
    :param heading: The title of the table.
    :param upstream: The executor is the official one: it may lose tasks, and is given no help in it. Its
        watch ends by itself after 30 s without an event.
    :raises AssertionError: If no task may be lost, and nothing has happened for :data:`.LONGEST_WAIT`.
    :raises ProcessError: If a component of Airflow ends.
    """
    plan = load_plan(PLAN)
    run = testbed.trigger(DAG_ID)

    def follow(until: Callable[[Sequence[Row]], bool]) -> list[Row]:
        seen, since = None, time.monotonic()
        while True:
            for component, process in testbed.deployment.components.items():
                if not process.running:
                    raise ProcessError(f"{component} has ended ({process.returncode})")
            rows = read_rows(plan, run)
            view.show(task_table(rows, heading), progress_line(rows))
            if until(rows):
                return rows
            found = [(row.outcome.begun, row.outcome.ended, row.outcome.has_ended) for row in rows]
            if seen != (seen := found):
                since = time.monotonic()
            elif upstream and time.monotonic() - since >= UPSTREAM_PATIENCE:
                return rows
            assert time.monotonic() - since < LONGEST_WAIT, f"no task begins or ends any more: {rows}"
            time.sleep(REFRESH)

    follow(lambda rows: all(row.outcome.has_ended or row.outcome.works for row in rows))
    failed = {rule.task_id: run.pods(rule.task_id)[:1] for rule in plan if rule.fault in TWO_HALVES}
    there = testbed.cluster.names()
    testbed.cluster.go_on(*(pod for pods in failed.values() for pod in pods if pod in there))
    opened = testbed.proxy.watches_opened
    follow(lambda _: all(run.events(task_id, JournalEvent.DELETED) for task_id in failed))
    if upstream:
        follow(lambda _: testbed.proxy.watches_opened > opened)
        testbed.schedulers.wait_for_turns(3)
    else:
        testbed.reconnect()
    run.release()
    # A task that has not even begun by now is not waited for.
    return follow(lambda rows: all(row.outcome.has_ended or not row.outcome.begun for row in rows))


def read_rows(plan: Sequence[FaultRule], run: Run) -> list[Row]:
    """Return what is known of the control and of the task of each rule, in this order."""
    faults: dict[str, Fault | None] = {CONTROL: None, **{rule.task_id: rule.fault for rule in plan}}
    outcomes = run.by_task()
    journal = run.journal()
    return [
        row_of(
            task_id,
            fault,
            outcomes.get(task_id, UNKNOWN),
            [entry for entry in journal if entry.task_id == task_id],
        )
        for task_id, fault in faults.items()
    ]


def row_of(task_id: str, fault: Fault | None, outcome: Outcome, journal: Sequence[JournalEntry]) -> Row:
    """
    Say what became of a task.

    :param journal: The lab's, about its pods.
    """
    arrivals = [entry for entry in journal if entry.event is JournalEvent.BOUND]
    loss = next((entry for entry in journal if entry.event is JournalEvent.FAULT_INJECTED), None)
    successors = [entry.time for entry in arrivals if loss and entry.time > loss.time]
    parts = 2 if task_id == IN_TWO_PARTS else 1
    return Row(
        task_id=task_id,
        fault=fault,
        outcome=outcome,
        nodes=[entry.node for entry in arrivals],
        # A task that fails on its own is entitled to a retry.
        retries=int(fault is Fault.WORKER_EXIT),
        begun=parts,
        ended=parts,
        fits=loss is not None if fault else outcome.pods == 1,
        relaunch_seconds=(min(successors) - loss.time).total_seconds() if loss and successors else None,
    )


def task_table(rows: Sequence[Row], heading: str) -> Table:
    """Return the table of all tasks as they are now."""
    return make_table(heading, rows, ("fault of its first pod", "nodes"), ("pods", "try", "begun", "ended"))


def progress_line(rows: Sequence[Row]) -> str:
    """Return one line about all tasks, for an output that is no terminal."""
    states = Counter(row.outcome.state or "none" for row in rows)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    pods = sum(row.outcome.pods for row in rows)
    return f"{counts}; {sum(row.fits for row in rows if row.fault)} pods lost, {pods} launched"


def summary_text(rows: Sequence[Row]) -> Group:
    """Return the numbers at the end, and which tasks did not do what they should."""
    lost = [row for row in rows if row.fault and not row.retries]
    seconds = [row.relaunch_seconds for row in lost if row.relaunch_seconds is not None]
    own = sum(row.retries for row in rows)
    unexpected = [row.task_id for row in rows if not row.as_expected]
    return Group(
        f"recovered         {sum(row.as_expected for row in lost)} of {len(lost)} tasks whose pod the"
        " infrastructure took",
        f"retries consumed  {sum(row.outcome.retries for row in rows)} ({own} expected: a worker exits on its"
        " own)",
        f"time to relaunch  {median(seconds):.1f} s median, {max(seconds):.1f} s longest"
        if seconds
        else "nothing was relaunched",
        f"user code         ran exactly once, to its end, in {sum(row.ran_as_expected for row in rows)} of"
        f" {len(rows)} tasks",
        Text(f"not what it should be: {', '.join(unexpected)}", style="bold red")
        if unexpected
        else Text("every task did what it should", style="bold green"),
    )
