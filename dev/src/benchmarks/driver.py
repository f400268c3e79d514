# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m benchmarks.driver JOB_ID``: an executor in a process with nothing of a scheduler but its loop.

It has in memory what a scheduler has. Commands are lines of JSON on standard input; each is answered by one
line on what was standard output. Airflow's own output goes where standard error goes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import sys
import time
from collections.abc import Iterable, Sequence
from io import FileIO
from typing import Any, TextIO

from airflow.executors.executor_loader import ExecutorLoader
from airflow.executors.workloads import ExecuteTask
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner  # noqa: F401 - its memory is the scheduler's
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import State
from sqlalchemy import select as sql_select

from benchmarks.held import Held, held_by


class Driver:
    """
    Turns the loop of one executor.

    :param job_id: of the scheduler that it belongs to
    :param commands: where the next command comes from; a loop ends when there is one
    """

    def __init__(self, job_id: int, commands: FileIO) -> None:
        self._commands = commands
        # With the default executor's alias it is the observed one of this candidate.
        self._executor: Any = ExecutorLoader.get_default_executor()
        self._executor.job_id = job_id
        self._held: Held = held_by(self._executor)
        # Airflow reads its list of metrics with the first one, which takes as long as thousands of events.
        self._executor._emit_metrics(0, 0, 0)  # type: ignore[no-untyped-call]

    def hold(self, pods: Sequence[Sequence[str]], first: int = 0) -> None:
        """
        Make pods that exist the current launches of the task instances, as if the executor had made them.

        :param pods: name and UID of each, in the order of the map indices. Before the executor can have seen
            them end.
        :param first: the map index of the first
        """
        with create_session(scoped=False) as session:
            for ti, (name, uid) in zip(_task_instances(session, first, len(pods)), pods, strict=True):
                self._held.hold(self._workload(ti), name, uid)
                session.expunge(ti)

    def start(self) -> float:
        """Start the executor and return how long that took, in seconds."""
        began = time.time()
        self._executor.start()
        return time.time() - began

    def run(self, pause: float, results: int | None = None, timeout: float = 900.0) -> dict[str, Any]:
        """
        Turn the loop until so many results have been read, or the next command comes.

        :param pause: seconds between two turns
        :param timeout: seconds after which it ends in any case
        """
        began, first, found, last = time.time(), len(self._executor.turns), 0, 0.0
        while not self._is_told() and time.time() - began < timeout:
            self._executor.heartbeat()
            if new := self._read_results():
                found, last = found + new, time.time()
            if results is not None and found >= results:
                break
            time.sleep(pause)
        turns = [end - begin for begin, end in self._executor.turns[first:]]
        return {"results": found, "seconds": (last or time.time()) - began, "turns": turns}

    def trim(self) -> None:
        """Give the memory back that is free."""
        gc.collect()
        # https://man7.org/linux/man-pages/man3/malloc_trim.3.html
        ctypes.CDLL(None).malloc_trim(0)

    def messages(self) -> int:
        """Return how many messages about pods have reached the loop so far; -1 if that cannot be seen."""
        return self._held.messages()

    def stop(self) -> None:
        """Stop the executor."""
        self._executor.end()

    def _read_results(self) -> int:
        events = self._executor.get_event_buffer().values()
        return sum(state in State.finished for state, _ in events)

    def _is_told(self) -> bool:
        return bool(select.select([self._commands], [], [], 0)[0])

    def _workload(self, ti: TaskInstance) -> ExecuteTask:
        return ExecuteTask.make(ti, generator=self._executor.jwt_generator)


def _task_instances(session: Any, first: int, count: int) -> Iterable[TaskInstance]:
    # A few at a time: all at once leave so many holes in the memory that nothing else can be seen in it.
    chosen = sql_select(TaskInstance).order_by(TaskInstance.map_index).offset(first).limit(count)
    found: Iterable[TaskInstance] = session.scalars(chosen.execution_options(yield_per=50))
    return found


def _serve(driver: Driver, commands: FileIO, answers: TextIO) -> None:
    while line := commands.readline():
        command = json.loads(line)
        name = command.pop("command")
        answer = getattr(driver, name)(**command)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Answer commands until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Not buffered: what was read ahead would not be seen by select().
    commands = FileIO(0)
    _serve(Driver(int(sys.argv[1]), commands), commands, answers)


if __name__ == "__main__":
    main()
