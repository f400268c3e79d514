# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What became of a task: from the metadata database, the lab's journal and the journal of the user's code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from cluster_lab.journal import JournalEntry, JournalEvent, read_journal
from demo.code_journal import read_code_runs, release_file

from .waiting import wait_for

_TASK_INSTANCE = text(
    "SELECT state, try_number, max_tries FROM task_instance"
    " WHERE dag_id = :dag_id AND run_id = :run_id AND task_id = :task_id AND map_index = :map_index"
)
_LEDGER = text(
    "SELECT extra FROM log WHERE event = 'pod launch failed'"
    " AND dag_id = :dag_id AND run_id = :run_id AND task_id = :task_id AND map_index = :map_index ORDER BY id"
)


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
    """Rows of the ledger."""


@dataclass(frozen=True)
class Records:
    """Where to read what happened."""

    engine: Engine
    cluster_journal: Path
    executions: Path
    """The folder of the journal that the tasks write."""


@dataclass(frozen=True)
class Run:
    """One run of a DAG."""

    records: Records
    dag_id: str
    run_id: str

    def outcome(self, task_id: str, map_index: int = -1) -> Outcome:
        """Return what has become of a task so far."""
        state, try_number, max_tries = self._query(_TASK_INSTANCE, task_id, map_index)[0]
        code = read_code_runs(self.records.executions)
        name = code_name(self.dag_id, task_id, map_index)
        return Outcome(
            state=state,
            try_number=try_number,
            max_tries=max_tries,
            pods=len(self.pods(task_id, map_index)),
            begun=sum(count for run, count in code.begun.items() if run.task_id == name),
            ended=sum(count for run, count in code.ended.items() if run.task_id == name),
            launch_failures=len(self.ledger(task_id, map_index)),
        )

    def ledger(self, task_id: str, map_index: int = -1) -> list[dict[str, Any]]:
        """Return what the ledger says about a task, oldest first."""
        return [json.loads(row[0]) for row in self._query(_LEDGER, task_id, map_index)]

    def events(self, task_id: str, event: JournalEvent, map_index: int = -1) -> list[JournalEntry]:
        """Return what the lab has noted about the pods of a task."""
        return [
            entry
            for entry in read_journal(self.records.cluster_journal)
            if (entry.run_id, entry.task_id, entry.map_index) == (self.run_id, task_id, map_index)
            and entry.event is event
        ]

    def pods(self, task_id: str, map_index: int = -1) -> list[str]:
        """Return the names of a task's pods that have reached a node, in that order."""
        return [entry.pod for entry in self.events(task_id, JournalEvent.BOUND, map_index)]

    def wait_for_pods(self, task_id: str, count: int, map_index: int = -1) -> list[str]:
        """Wait until so many pods of a task have reached a node, and return their names."""

        def enough() -> list[str]:
            pods = self.pods(task_id, map_index)
            return pods if len(pods) >= count else []

        return wait_for(f"pod {count} of {task_id} is on a node", enough)

    def wait_for_code(self, *task_ids: str) -> None:
        """Wait until the user's code of these tasks has begun."""
        wait_for(
            f"the code of {', '.join(task_ids)} runs",
            lambda: all(self.outcome(task_id).begun for task_id in task_ids),
        )

    def wait_for_end(self, task_id: str, map_index: int = -1) -> Outcome:
        """Wait for the end of a task instance and return what has become of it."""

        def ended() -> Outcome | None:
            outcome = self.outcome(task_id, map_index)
            return outcome if outcome.state in ("success", "failed", "upstream_failed") else None

        outcome = wait_for(f"{task_id} has ended", ended)
        assert outcome is not None
        return outcome

    def release(self) -> None:
        """Let the tasks that wait for it come to their end."""
        release_file(self.records.executions / self.dag_id).touch()

    def _query(self, query: Any, task_id: str, map_index: int) -> list[Any]:
        parameters = {
            "dag_id": self.dag_id,
            "run_id": self.run_id,
            "task_id": task_id,
            "map_index": map_index,
        }
        with self.records.engine.connect() as connection:
            return list(connection.execute(query, parameters))


def code_name(dag_id: str, task_id: str, map_index: int) -> str:
    """Return the name under which the code of a task instance is recorded."""
    return f"{dag_id}.{task_id}[{map_index}]"
