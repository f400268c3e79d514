# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The lab's journal: what it did to which pod and when, one JSON object per line.

Each line is written and flushed as the event happens, so the file can be read while the lab runs. The keys
are the fields of :class:`JournalEntry`; times are ISO 8601 in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JournalEvent(StrEnum):
    """What happened."""

    BOUND = "bound"
    """A node saw the pod for the first time. Each pod has exactly one of these: they count the launches."""
    STARTED = "started"
    """The worker container runs as a process."""
    FAULT_INJECTED = "fault-injected"
    """The fault of this launch was carried out (its first half, if it has two)."""
    EXITED = "exited"
    """The worker process ended; ``exit_code`` says how, as the pod's status does."""
    DELETED = "deleted"
    """The pod is gone from the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One event of one pod."""

    time: datetime
    event: JournalEvent
    pod: str
    uid: str
    node: str
    dag_id: str
    """Empty for a pod that is not a worker of Airflow, as are the other fields of the task instance."""
    task_id: str
    run_id: str
    map_index: int
    """-1 for a task that is not mapped."""
    try_number: int
    phase: str
    """``initial`` or ``resume`` (the task was deferred or rescheduled before)."""
    launch: int
    """Which pod of the try in this phase, from 1."""
    exit_code: int | None = None
    """With ``exited`` only."""


class Journal:
    """Writes entries to a file."""

    def __init__(self, path: Path) -> None:
        # Buffered by lines.
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def write(self, entry: JournalEntry) -> None:
        """Append an entry."""
        line = json.dumps(asdict(entry) | {"time": entry.time.isoformat()}, separators=(",", ":"))
        self._file.write(line + "\n")


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


def open_journal(path: Path) -> JsonLines[JournalEntry]:
    """Return the entries of a journal, also of one that is being written."""
    return JsonLines(path, _entry)


def _entry(item: dict[str, Any]) -> JournalEntry:
    time, event = datetime.fromisoformat(item["time"]), JournalEvent(item["event"])
    return JournalEntry(**(item | {"time": time, "event": event}))
