# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A task instance whose scheduler is dead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow.models.taskinstancekey import TaskInstanceKey


@dataclass(frozen=True, slots=True)
class Orphan:
    """A task instance whose scheduler is dead."""

    key: TaskInstanceKey
    ti_id: str
    state: str | None
    hostname: str | None
    job_id: int
    """The dead scheduler's job."""
    former_id: str | None = None
    """The UUID that its worker knows, if it was cleared while it ran and waits for the end of that worker."""
    replaced_ids: frozenset[str] = frozenset()
    """The UUIDs that it had in this try before its worker was lost and it ran again."""
    past_workers: frozenset[str] = frozenset()
    """UIDs of the pods that had failed in this try before a worker last started the task. They are of an
    earlier phase if it is queued."""
    start_date: datetime | None = None
    """When a worker has first started the try, or the try before it."""

    @property
    def pod_id(self) -> str:
        """The task instance's UUID that its pods carry."""
        return self.former_id or self.ti_id
