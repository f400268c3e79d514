# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The lab's journal: what it did to which pod and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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
    launch: int
    """Which pod of the try, from 1; from 1 again if the task was deferred or rescheduled before."""
    exit_code: int | None = None
    """With ``exited`` only."""
