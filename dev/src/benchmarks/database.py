# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The metadata database of one measurement, as the benchmark changes and reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from benchmarks.candidates import MANY, Candidate, airflow_environment
from cluster_lab.managed_process import inherited_environment, run_to_end
from cluster_lab.postgres import EmbeddedPostgres

_JOB = text(
    "INSERT INTO job (job_type, state, latest_heartbeat, start_date, hostname)"
    " VALUES ('SchedulerJob', :state, now(), now(), 'benchmark') RETURNING id"
)
_STATE = text(
    "UPDATE task_instance SET state = :state, try_number = 1, queued_by_job_id = :job_id,"
    " queued_dttm = CASE WHEN :state = 'scheduled' THEN NULL ELSE now() END,"
    " scheduled_dttm = now(), start_date = CASE WHEN :state = 'running' THEN now() END"
)
# The first item of an array has the number 1, and the first map index is 0.
_HOSTNAMES = text("UPDATE task_instance SET hostname = (CAST(:names AS text[]))[map_index + 1]")
_NEWEST_JOB = text("SELECT max(id) FROM job WHERE job_type = 'SchedulerJob'")
_LIMITS = text("UPDATE slot_pool SET slots = :slots")
_PAUSE = text("UPDATE dag SET is_paused = :paused")
_IDS = text("SELECT id FROM task_instance ORDER BY map_index")
_SEED_TIMEOUT = 600.0


class Database:
    """A database with one DAG run."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def add_scheduler_job(self) -> int:
        """Register a scheduler and return its job's id."""
        return int(self._run(_JOB, state="running"))

    def newest_job(self) -> int:
        """Return the id of the job of the scheduler that was started last."""
        return int(self._run(_NEWEST_JOB))

    def set_state(self, state: str, job_id: int | None = None) -> None:
        """
        Put all task instances into a state, in their first try.

        :param job_id: the scheduler that has queued them
        """
        self._run(_STATE, state=state, job_id=job_id)

    def set_hostnames(self, names: list[str]) -> None:
        """
        Note where the task instances run, as their workers report it.

        :param names: of their pods, in the order of the map indices
        """
        self._run(_HOSTNAMES, names=names)

    def pause(self, *, paused: bool) -> None:
        """Keep schedulers from the DAG, or let them have it."""
        self._run(_PAUSE, paused=paused)

    def ti_ids(self) -> list[str]:
        """Return the UUIDs of the task instances, in the order of their map indices."""
        with self._engine.connect() as connection:
            return [str(ti_id) for ti_id in connection.execute(_IDS).scalars()]

    def raise_limits(self) -> None:
        """Give the pool more slots than there are tasks."""
        self._run(_LIMITS, slots=MANY)

    def _run(self, statement: Any, **parameters: Any) -> Any:
        with self._engine.begin() as connection:
            result = connection.execute(statement, parameters)
            return result.scalar() if result.returns_rows else None


class Databases:
    """Makes databases: a migration takes seconds, a copy of a migrated one next to nothing."""

    def __init__(self, server: EmbeddedPostgres, home: Path) -> None:
        self._server = server
        self._home = home
        self._seeded: dict[int, str] = {}
        self._made = 0

    def make(self, count: int) -> Database:
        """Make a database with so many task instances."""
        if count not in self._seeded:
            self._seeded[count] = self._seed(count)
        self._made += 1
        return Database(self._server.create_database(f"run_{self._made}", self._seeded[count]))

    def _seed(self, count: int) -> str:
        name = f"seeded_{count}"
        url = self._server.create_database(name)
        environment = airflow_environment(Candidate.OURS, self._home, url, self._home / "no-kubeconfig")
        command = [sys.executable, "-m", "benchmarks.seed_database", str(count)]
        done = run_to_end(command, inherited_environment() | environment, _SEED_TIMEOUT)
        if done.returncode != 0:
            raise RuntimeError(f"the database could not be seeded:\n{done.stdout}{done.stderr}")
        database = Database(url)
        database.raise_limits()
        database.pause(paused=True)
        database.close()
        return name
