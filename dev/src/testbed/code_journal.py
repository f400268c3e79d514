# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
How often the user's code ran: each task writes a line when its code begins and one when it has ended.

Airflow's own state cannot tell that: a task that ran twice, or half and then again, is a success too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")

FOLDER_VARIABLE = "TESTBED_EXECUTIONS"
"""The environment variable that tells workers the folder of the journal."""


_JOURNAL = "executions.jsonl"


class Order(StrEnum):
    """What the task in a pod can be told to do."""

    SUCCEED = "succeed"
    FAIL = "fail"
    DIE = "die"
    """Its process is killed, and nothing else in its pod."""


CALLBACK = "called back"
"""The step of a task whose failure callback is called."""


@contextmanager
def recorded(task_id: str) -> Iterator[None]:
    """Record the beginning of the block, and its end if it is reached."""
    _write(task_id, "begun")
    yield
    _write(task_id, "ended")


def record_callback(task_id: str) -> None:
    """Record that the failure callback of a task is called."""
    _write(task_id, CALLBACK)


class JsonLines(Generic[T]):
    """
    What is in a file that grows, an object in each line. Each look reads what is new. For one thread.

    :param path: the file; one that is not there yet is empty
    :param parse: makes something of an object
    """

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], T]) -> None:
        self._path = path
        self._parse = parse
        self._read = 0
        self._found: list[T] = []

    def read(self) -> list[T]:
        """Return what is in the file by now. A last line without its end is still being written."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                complete, end, _ = file.read().rpartition(b"\n")
            # None of them is passed over if one cannot be parsed.
            self._found += [self._parse(json.loads(line)) for line in complete.splitlines()]
            self._read += len(complete) + len(end)
        return self._found.copy()


def open_code_journal(folder: Path) -> JsonLines[tuple[str, str]]:
    """
    Return what the workers have written so far.

    :param folder: that of the journal
    :return: names of code, each with a step: it has ``begun`` or ``ended``, or it is :data:`CALLBACK`
    """
    return JsonLines(folder / _JOURNAL, lambda entry: (entry["task_id"], entry["step"]))


def code_name(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Return the name under which the code of a task instance is recorded."""
    return f"{dag_id}/{run_id}/{task_id}[{map_index}]"


def release_file(folder: Path) -> Path:
    """Return the file whose existence tells the running tasks to come to their end."""
    return folder / "release"


def order_file(folder: Path, pod: str) -> Path:
    """Return the file that tells the task in one pod what to do."""
    return folder / "orders" / pod


def folder_of_worker() -> Path:
    """Return the folder of the journal, in a worker."""
    return Path(os.environ[FOLDER_VARIABLE])


def _write(task_id: str, step: str) -> None:
    append_line(_JOURNAL, {"task_id": task_id, "step": step, "pid": os.getpid()})


def append_line(name: str, item: Mapping[str, object]) -> None:
    """Write an object to a file in the folder of the journal, from any process of the deployment."""
    # One write in append mode: lines of workers that write at the same time do not mix.
    with (folder_of_worker() / name).open("ab", buffering=0) as file:
        file.write(f"{json.dumps(item)}\n".encode())
