# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Who was told why a task has failed: each listener, callback and task writes a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from airflow_resilience.context import ExecutionContext
from testbed.code_journal import folder_of_worker


class Told(NamedTuple):
    """One that was told."""

    who: str
    task_id: str
    why: str
    """Category, reason and source; ``unknown`` if it was told nothing."""


def note(who: str, task_id: str, context: ExecutionContext | None) -> None:
    """Write down who is told what, from any process of the deployment."""
    why = f"{context.category} {context.reason} {context.source}" if context else "unknown"
    with _file(folder_of_worker()).open("a", encoding="utf-8") as file:
        file.write(json.dumps([who, task_id, why]) + "\n")


def read_told(folder: Path, task_id: str) -> list[Told]:
    """Return who was told about a task, in order."""
    file = _file(folder)
    complete = file.read_text(encoding="utf-8").rpartition("\n")[0] if file.exists() else ""
    told = [Told(*json.loads(line)) for line in complete.splitlines()]
    return [item for item in told if item.task_id == task_id]


def _file(folder: Path) -> Path:
    return folder / "told.jsonl"
