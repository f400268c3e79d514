# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One run of the demo's DAG: trigger it, follow it in the terminal, end it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from cluster_lab.faults.plan import FaultPlan
from demo.display import View
from demo.outcome import Evidence, TaskOutcome, outcomes
from demo.pace import Pace
from testbed.records import Run
from testbed.testbed import Testbed

DAG_ID = "lost_pods"
REFRESH = 0.5


def follow_run(testbed: Testbed, plan: FaultPlan, view: View) -> list[TaskOutcome]:
    """
    Trigger the DAG, show what becomes of each task, and return the rows when nothing more is to come.

    :param testbed: Which has the DAG already.
    :param plan: What happens to the pods.
    :param view: Where to show it.
    """
    started = datetime.now(UTC)
    run = testbed.trigger(DAG_ID)
    pace = Pace(time.monotonic())
    while True:
        rows, now = outcomes(plan, _evidence(run, started)), time.monotonic()
        pace.observe(rows, now)
        view.show(rows, now - pace.started)
        if pace.is_over(rows, now):
            return rows
        if not pace.released and pace.may_end(rows, now):
            run.release()
            pace.release(now)
        time.sleep(REFRESH)


def _evidence(run: Run, started: datetime) -> Evidence:
    journal, code = run.journal(), run.records.code()
    tasks = {task.task_id: task for task in run.task_instances()}
    return Evidence(tasks, journal, code, started, datetime.now(UTC))
