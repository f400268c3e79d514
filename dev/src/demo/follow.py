# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One run of the demo's DAG: trigger it, follow it in the terminal, end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cluster_lab.faults.plan import Fault, FaultPlan
from cluster_lab.journal import JournalEvent
from cluster_lab.managed_process import ProcessError
from demo.display import View
from demo.outcome import Evidence, TaskOutcome, outcomes
from testbed.records import Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT

DAG_ID = "lost_pods"
REFRESH = 0.5

TWO_HALVES = (Fault.UNKNOWN_THEN_PODGC, Fault.FAILED_THEN_CLEANUP)
"""Faults whose pods are removed some time after they have failed."""

TURNS = 3
"""Heartbeats of the scheduler in which the executor acts on what its new list of pods says."""


def follow_run(
    testbed: Testbed, plan: FaultPlan, view: View, *, cut_watch: bool, patience: float | None
) -> list[TaskOutcome]:
    """
    Trigger the DAG, show what becomes of each task, and return the rows when nothing more is to come.

    The tasks work until the executor has listed and watched all pods anew, and so has seen each dead pod for
    a second time beside its healthy successor.

    :param testbed: Which has the DAG already.
    :param plan: What happens to the pods.
    :param view: Where to show it.
    :param cut_watch: Break off the executor's watch, and let its resourceVersion expire. If not, the watch
        has to end by itself: that of the official executor gives up after 30 s without an event.
    :param patience: Seconds without a task beginning or ending, after which the rest is not waited for. None
        if no task may be lost.
    :raises AssertionError: If a task may not be lost, and nothing has happened for :data:`.LONGEST_WAIT`.
    :raises ProcessError: If a component of Airflow ends.
    """
    started = datetime.now(UTC)
    run = testbed.trigger(DAG_ID)
    beginning = time.monotonic()

    def show() -> list[TaskOutcome]:
        for component, process in testbed.deployment.components.items():
            if not process.running:
                raise ProcessError(f"{component} has ended ({process.returncode})")
        rows = outcomes(plan, _evidence(run, started))
        view.show(rows, time.monotonic() - beginning)
        return rows

    def finish(until: Callable[[Sequence[TaskOutcome]], bool]) -> list[TaskOutcome]:
        return follow(show, until, patience)

    finish(lambda rows: all(row.finished or row.working for row in rows))
    failed = {rule.task_id: run.pods(rule.task_id)[:1] for rule in plan.rules if rule.fault in TWO_HALVES}
    there = testbed.cluster.names()
    testbed.cluster.go_on(*(pod for pods in failed.values() for pod in pods if pod in there))
    finish(lambda _: all(run.events(task_id, JournalEvent.DELETED) for task_id in failed))
    opened = testbed.proxy.watches_opened
    if cut_watch:
        testbed.proxy.expire_watches()
        testbed.proxy.cut_watches()
    finish(lambda _: testbed.proxy.watches_opened > opened)
    testbed.schedulers.wait_for_turns(TURNS)
    run.release()
    # A task that has not even begun by now is not waited for.
    return finish(lambda rows: all(row.finished or not row.code_runs for row in rows))


def follow(
    show: Callable[[], list[TaskOutcome]],
    until: Callable[[Sequence[TaskOutcome]], bool],
    patience: float | None,
) -> list[TaskOutcome]:
    """
    Show the rows again and again, and return the last ones.

    :param show: Reads them, and shows them.
    :param until: Whether to go on; asked each time.
    :param patience: Seconds without a task beginning or ending, after which to go on anyway; None: never.
    :raises AssertionError: After :data:`.LONGEST_WAIT` without that.
    """
    progress, since = None, time.monotonic()
    while not until(rows := show()):
        now, seen = time.monotonic(), [(row.code_runs, row.working, row.finished) for row in rows]
        if seen != progress:
            progress, since = seen, now
        elif patience is None and now - since >= LONGEST_WAIT:
            raise AssertionError(f"no task has begun or ended for {LONGEST_WAIT:.0f} s: {rows}")
        elif patience is not None and now - since >= patience:
            break
        time.sleep(REFRESH)
    return rows


def _evidence(run: Run, started: datetime) -> Evidence:
    journal, code = run.journal(), run.records.code()
    tasks = {task.task_id: task for task in run.task_instances()}
    return Evidence(tasks, journal, code, started, datetime.now(UTC))
