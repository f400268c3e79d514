# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What became of a task: from the metadata database, the lab's journal and the journal of the user's code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine, text

from cluster_lab.journal import JournalEntry, JournalEvent
from testbed.airflow_version import airflow_version
from testbed.code_journal import CALLBACK, JsonLines, code_name, release_file
from testbed.waiting import wait_for

_TASK_INSTANCES, _HISTORY = (
    (
        text(
            "SELECT task_id, map_index, state, try_number, max_tries FROM task_instance"
            " WHERE dag_id = :dag_id AND run_id = :run_id ORDER BY task_id, map_index"
        ),
        text(
            "SELECT count(*) FROM task_instance_history"
            " WHERE dag_id = :dag_id AND run_id = :run_id AND task_id = :task_id"
        ),
    )
    if airflow_version() < (3, 4)
    # Each try has a row of its own, and one that has ended is archived.
    else (
        text(
            "SELECT task_id, region_index, state, try_number, max_tries FROM task_instance"
            " WHERE working_set AND dag_id = :dag_id AND run_id = :run_id ORDER BY task_id, region_index"
        ),
        text(
            "SELECT count(*) FROM task_instance WHERE working_set IS NULL"
            " AND dag_id = :dag_id AND run_id = :run_id AND task_id = :task_id"
        ),
    )
)
_AUDIT_LOG = text(
    "SELECT task_id, coalesce(map_index, -1), event, extra FROM log"
    " WHERE dag_id = :dag_id AND run_id = :run_id AND task_id IS NOT NULL ORDER BY id"
)
LAUNCH_FAILURE_EVENT = "pod launch failed"
EXECUTION_FAILURE_EVENT = "pod execution failed"
"""What the rows of the ledger are called in the audit log."""

_RUNS = text("SELECT run_id FROM dag_run WHERE dag_id = :dag_id")
_DELETE_RUNS = text("DELETE FROM dag_run")


FINAL_STATES = frozenset({"success", "failed", "upstream_failed", "skipped", "removed"})


class TaskId(NamedTuple):
    """A task instance of a run."""

    task_id: str
    map_index: int = -1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Everything about a task instance that a lost pod could have changed."""

    state: str | None
    try_number: int = 1
    max_tries: int = 0
    pods: int
    """How many reached a node, over all tries."""
    begun: int = 1
    """How often the user's code began; a deferred task's code has two parts."""
    ended: int = 1
    """How often it came to its end."""
    launch_failures: int
    """Rows of the ledger about pods that were lost before the task ran."""
    execution_failures: int = 0
    """Those about pods that were lost while it ran."""
    callbacks: int = 0
    """How often its failure callback was called."""

    @property
    def retries(self) -> int:
        """How many task retries were consumed."""
        return max(self.try_number - 1, 0)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to the task instance."""
        return self.state in FINAL_STATES

    @property
    def works(self) -> bool:
        """Whether some of its code has begun and not ended."""
        return self.begun > self.ended and not self.has_ended


UNTOUCHED = Outcome(state="success", pods=1, launch_failures=0)
RECOVERED = Outcome(state="success", pods=2, launch_failures=1)
"""It has lost its first pod, before its code began."""
RUN_AGAIN = Outcome(state="success", pods=2, begun=2, launch_failures=0, execution_failures=1)
"""It has lost its first pod, while its code ran."""


@dataclass(frozen=True)
class Records:
    """Where to read what happened, in all runs of all DAGs."""

    engine: Engine
    """The metadata database: the API server has enough to do with the workers."""
    lab: Sequence[JournalEntry]
    """What the lab has noted about all pods, oldest first."""
    code: JsonLines[tuple[str, str]]
    """What the tasks have noted."""
    executions: Path
    """The folder of that journal."""

    def runs(self, dag_id: str) -> list[Run]:
        """Return the runs of a DAG."""
        with self.engine.connect() as connection:
            return [Run(self, dag_id, run_id) for run_id in connection.scalars(_RUNS, {"dag_id": dag_id})]

    def delete_runs(self) -> None:
        """Delete all runs of all DAGs, with their task instances."""
        with self.engine.begin() as connection:
            connection.execute(_DELETE_RUNS)


@dataclass(frozen=True)
class Run:
    """One run of a DAG."""

    records: Records
    dag_id: str
    run_id: str

    # ------------------------------------------------------------------ what happened

    def outcomes(self) -> dict[TaskId, Outcome]:
        """
        Return what has become of each task instance so far.

        States are read first: pods, code and ledger of an ended task instance are complete by then.
        """
        task_instances = self._task_instances()
        pods = Counter(TaskId(entry.task_id, entry.map_index) for entry in self.all_pods())
        code = Counter(self.records.code.read())
        ledger = Counter((task, event) for task, event, _ in self._audit_log())
        return {
            key: Outcome(
                state=state,
                try_number=try_number,
                max_tries=max_tries,
                pods=pods[key],
                begun=code[self._code_name(key), "begun"],
                ended=code[self._code_name(key), "ended"],
                launch_failures=ledger[key, LAUNCH_FAILURE_EVENT],
                execution_failures=ledger[key, EXECUTION_FAILURE_EVENT],
                callbacks=code[self._code_name(key), CALLBACK],
            )
            for key, state, try_number, max_tries in task_instances
        }

    def by_task(self) -> dict[str, Outcome]:
        """Return the same of tasks that are not mapped."""
        return {key.task_id: outcome for key, outcome in self.outcomes().items() if key.map_index < 0}

    def outcome(self, task_id: str) -> Outcome:
        """Return what has become of a task, which is not mapped, so far."""
        return self.outcomes()[TaskId(task_id)]

    def states(self) -> dict[TaskId, str | None]:
        """Return the state of each task instance."""
        return {key: state for key, state, *_ in self._task_instances()}

    def ledger(self, task_id: str, *, event: str = LAUNCH_FAILURE_EVENT) -> list[dict[str, Any]]:
        """
        Return what the ledger says about a task, which is not mapped, oldest first.

        :param event: whose rows are meant: launches that have failed, or executions
        """
        return [
            json.loads(extra)
            for task, of, extra in self._audit_log()
            if (task, of) == (TaskId(task_id), event)
        ]

    def causes(self, task_id: str, *, event: str = LAUNCH_FAILURE_EVENT) -> list[str]:
        """Return the cause of each of a task's failures that the ledger has."""
        return [row["context"]["metadata"]["cause"] for row in self.ledger(task_id, event=event)]

    def audit_log(self, task_id: str) -> list[str]:
        """Return the events that the audit log has about a task, oldest first."""
        return [event for task, event, _ in self._audit_log() if task.task_id == task_id]

    def history(self, task_id: str) -> int:
        """Return how many tries of a task, which is not mapped, Airflow has put into its history."""
        names = {"dag_id": self.dag_id, "run_id": self.run_id, "task_id": task_id}
        with self.records.engine.connect() as connection:
            count: int = connection.execute(_HISTORY, names).scalar_one()
        return count

    def steps(self, task_id: str) -> list[str]:
        """Return each time that the code of a task has ``begun`` or ``ended``, in this order."""
        code = self._code_name(TaskId(task_id))
        return [step for name, step in self.records.code.read() if name == code and step != CALLBACK]

    def journal(self) -> list[JournalEntry]:
        """Return what the lab has noted about the pods of the run."""
        return [entry for entry in self.records.lab if entry.run_id == self.run_id]

    def events(self, task_id: str, event: JournalEvent) -> list[JournalEntry]:
        """Return what the lab has noted about the pods of a task."""
        return [entry for entry in self.journal() if (entry.task_id, entry.event) == (task_id, event)]

    def pods(self, task_id: str) -> list[str]:
        """Return the names of a task's pods that have reached a node, in that order."""
        return [entry.pod for entry in self.events(task_id, JournalEvent.BOUND)]

    def has_failed(self, task_id: str, pod: str) -> bool:
        """Tell whether the worker of a task's pod has ended by itself, and not well."""
        return any(
            entry.pod == pod and entry.exit_code for entry in self.events(task_id, JournalEvent.EXITED)
        )

    def all_pods(self) -> list[JournalEntry]:
        """Return the arrival of each of the run's pods on a node."""
        return [entry for entry in self.journal() if entry.event is JournalEvent.BOUND]

    # ------------------------------------------------------------------ waiting for it

    def wait_for_pods(self, task_id: str, count: int) -> list[str]:
        """Wait until so many pods of a task have reached a node, and return their names."""
        pods = partial(self.pods, task_id)
        wait_for(f"pod {count} of {task_id} is on a node", lambda: len(pods()) >= count, show=pods)
        return pods()

    def wait_for_code(self, *task_ids: str) -> None:
        """Wait until the user's code of these tasks has begun."""
        self.wait_for_times(1, *task_ids)

    def wait_for_times(self, times: int, *task_ids: str) -> None:
        """Wait until the user's code of these tasks has begun so many times."""

        def begun() -> bool:
            outcomes = self.outcomes()
            found = {task_id: outcomes[TaskId(task_id)] for task_id in task_ids}
            missing = {task_id: outcome for task_id, outcome in found.items() if outcome.begun < times}
            ended = [outcome for outcome in missing.values() if outcome.has_ended]
            assert not ended, f"a task ended before its code ran for time {times}: {missing}"
            return not missing

        wait_for(f"the code of {', '.join(task_ids)} runs for time {times}", begun, show=self.outcomes)

    def wait_for_ledger(self, task_id: str, rows: int) -> None:
        """Wait until the ledger has so many rows about a task."""
        wait_for(
            f"row {rows} of {task_id} is in the ledger",
            lambda: len(self.ledger(task_id)) >= rows,
            show=lambda: self.ledger(task_id),
        )

    def wait_for_end(self, task_id: str) -> Outcome:
        """Wait for the end of a task and return what has become of it."""
        self._wait_for_end({TaskId(task_id)})
        return self.outcome(task_id)

    def wait_for_all_to_end(self) -> dict[str, Outcome]:
        """Wait for the end of all tasks, and return what has become of those that are not mapped."""
        self._wait_for_end(self.states().keys())
        return self.by_task()

    def _wait_for_end(self, tasks: Collection[TaskId]) -> None:
        def all_ended() -> bool:
            ended = {key for key, state in self.states().items() if state in FINAL_STATES}
            return ended.issuperset(tasks)

        wait_for(f"{len(tasks)} tasks of {self.dag_id} have ended", all_ended, show=self.states)

    def wait_for_callback(self, task_id: str) -> None:
        """Wait until the failure callback of a task has been called: the DAG processor does that."""
        outcome = partial(self.outcome, task_id)
        wait_for("the callback is called", lambda: outcome().callbacks, show=outcome)

    def release(self) -> None:
        """Let the tasks that wait for it come to their end, those of all runs of the DAG."""
        release_file(self.records.executions / self.dag_id).touch()

    def _audit_log(self) -> list[tuple[TaskId, str, str]]:
        with self.records.engine.connect() as connection:
            rows = connection.execute(_AUDIT_LOG, {"dag_id": self.dag_id, "run_id": self.run_id})
            return [(TaskId(task_id, index), event, extra) for task_id, index, event, extra in rows]

    def _task_instances(self) -> list[tuple[TaskId, str | None, int, int]]:
        with self.records.engine.connect() as connection:
            rows = connection.execute(_TASK_INSTANCES, {"dag_id": self.dag_id, "run_id": self.run_id})
            return [(TaskId(task_id, map_index), *values) for task_id, map_index, *values in rows]

    def _code_name(self, task: TaskId) -> str:
        return code_name(self.dag_id, self.run_id, *task)
