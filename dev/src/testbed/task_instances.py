# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A task instance as the records name it. Pure, and imports next to nothing: light workers start with it."""

from __future__ import annotations

from typing import NamedTuple

FINAL_STATES = frozenset({"success", "failed", "upstream_failed", "skipped", "removed"})


class TaskInstance(NamedTuple):
    """A task instance in the metadata database."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    state: str | None = None
    try_number: int = 0
    max_tries: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in FINAL_STATES

    @property
    def code_name(self) -> str:
        """What its code is called in the journal of the user's code."""
        return code_name(*self[:4])


def code_name(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Return the name under which the code of a task instance is recorded."""
    return f"{dag_id}/{run_id}/{task_id}[{map_index}]"
