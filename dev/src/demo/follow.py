# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One run of the demo's DAG: trigger it, follow it in the terminal, end it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, text

from cluster_lab.faults.plan import FaultPlan
from cluster_lab.journal import read_journal
from demo.airflow_client import AirflowClient
from demo.code_journal import read_code_runs, release_file
from demo.display import View
from demo.outcome import Evidence, TaskOutcome, TaskState, outcomes
from demo.pace import Pace

DAG_ID = "lost_pods"
REFRESH = 0.5

_TASK_INSTANCES = text(
    "SELECT task_id, state, try_number, end_date FROM task_instance"
    " WHERE dag_id = :dag_id AND run_id = :run_id"
)


@dataclass(frozen=True)
class Records:
    """Where to read what happened."""

    engine: Engine
    """The metadata database: the API server has enough to do with the workers."""

    cluster_journal: Path
    executions: Path
    """The folder of the journal that the tasks write."""

    plan: FaultPlan

    def rows(self, run_id: str, started: datetime) -> list[TaskOutcome]:
        """Return the table as it is now."""
        journal = [entry for entry in read_journal(self.cluster_journal) if entry.run_id == run_id]
        code = read_code_runs(self.executions)
        states = {state.task_id: state for state in self._states(run_id)}
        return outcomes(self.plan, Evidence(states, journal, code, started, datetime.now(UTC)))

    def _states(self, run_id: str) -> list[TaskState]:
        with self.engine.connect() as connection:
            found = connection.execute(_TASK_INSTANCES, {"dag_id": DAG_ID, "run_id": run_id})
            return [TaskState(*row) for row in found]


def follow_run(client: AirflowClient, records: Records, view: View) -> list[TaskOutcome]:
    """
    Trigger the DAG, show what becomes of each task, and return the rows when nothing more is to come.

    :param client: The API server of the deployment, which has the DAG already.
    :param records: Where to read what happens.
    :param view: Where to show it.
    """
    started = datetime.now(UTC)
    run_id = client.trigger(DAG_ID)
    pace = Pace(time.monotonic())
    while True:
        rows, now = records.rows(run_id, started), time.monotonic()
        pace.observe(rows, now)
        view.show(rows, now - pace.started)
        if pace.is_over(rows, now):
            return rows
        if not pace.released and pace.may_end(rows, now):
            release_file(records.executions).touch()
            pace.release(now)
        time.sleep(REFRESH)
