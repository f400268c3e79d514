# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
How often the user's code ran: each task writes a line when its code begins and one when it has ended.

Airflow's own state cannot tell that: a task that ran twice, or half and then again, is a success too.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

FOLDER_VARIABLE = "TESTBED_EXECUTIONS"
"""The environment variable that tells workers the folder of the journal."""


class Order(StrEnum):
    """What the task in a pod can be told to do."""

    SUCCEED = "succeed"
    FAIL = "fail"
    DIE = "die"
    """Its process is killed, and nothing else in its pod."""


class CodeRun(NamedTuple):
    """A piece of user code: the body of a task, or the part of a deferred task that follows the trigger."""

    task_id: str
    part: str


class CodeRuns(NamedTuple):
    """How often each piece of code began, and how often it came to its end."""

    begun: Counter[CodeRun]
    ended: Counter[CodeRun]

    def once(self, task_id: str) -> bool:
        """Tell whether all code of a task ran, exactly once and to its end."""
        runs = {run for run in self.begun if run.task_id == task_id}
        return bool(runs) and all(self.begun[run] == self.ended[run] == 1 for run in runs)

    def working(self, task_id: str) -> bool:
        """Tell whether some code of a task has begun more often than it ended (it runs, or was killed)."""
        return any(count > self.ended[run] for run, count in self.begun.items() if run.task_id == task_id)

    def times(self, task_id: str) -> int:
        """Return how often the code of a task began (the most repeated part of it)."""
        return max((count for run, count in self.begun.items() if run.task_id == task_id), default=0)


CALLBACK = "called back"
"""The step of a task whose failure callback is called."""


@contextmanager
def recorded(task_id: str, part: str = "execute") -> Iterator[None]:
    """Record the beginning of the block, and its end if it is reached."""
    _write(task_id, part, "begun")
    yield
    _write(task_id, part, "ended")


def record_callback(task_id: str) -> None:
    """Record that the failure callback of a task is called."""
    _write(task_id, "callback", CALLBACK)


def read_code_runs(folder: Path) -> CodeRuns:
    """Count what the workers have written so far."""
    counts = {"begun": Counter[CodeRun](), "ended": Counter[CodeRun](), CALLBACK: Counter[CodeRun]()}
    for entry in _entries(folder):
        counts[entry["step"]][CodeRun(entry["task_id"], entry["part"])] += 1
    return CodeRuns(counts["begun"], counts["ended"])


def read_callbacks(folder: Path) -> Counter[str]:
    """Count the calls of each task's failure callback, in whatever process."""
    return Counter(entry["task_id"] for entry in _entries(folder) if entry["step"] == CALLBACK)


def read_steps(folder: Path, task_id: str) -> list[str]:
    """Return each time that the code of a task has ``begun`` or ``ended``, in this order."""
    entries = [entry for entry in _entries(folder) if entry["task_id"] == task_id]
    return [entry["step"] for entry in entries if entry["step"] != CALLBACK]


def release_file(folder: Path) -> Path:
    """Return the file whose existence tells the running tasks to come to their end."""
    return folder / "release"


def order_file(folder: Path, pod: str) -> Path:
    """Return the file that tells the task in one pod what to do."""
    return folder / "orders" / pod


def folder_of_worker() -> Path:
    """Return the folder of the journal, in a worker."""
    return Path(os.environ[FOLDER_VARIABLE])


def _journal(folder: Path) -> Path:
    return folder / "executions.jsonl"


def _entries(folder: Path) -> Iterator[dict[str, Any]]:
    journal = _journal(folder)
    if journal.exists():
        complete, _, _ = journal.read_text(encoding="utf-8").rpartition("\n")
        yield from map(json.loads, complete.splitlines())


def _write(task_id: str, part: str, step: str) -> None:
    line = json.dumps({"task_id": task_id, "part": part, "step": step, "pid": os.getpid()})
    # One write in append mode: lines of workers that write at the same time do not mix.
    with _journal(folder_of_worker()).open("ab", buffering=0) as journal:
        journal.write(f"{line}\n".encode())
