# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What Airflow says about the task instance of this very process, asked while its worker is terminated."""

from __future__ import annotations

import enum
import logging
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from airflow.sdk import TaskInstanceState

if TYPE_CHECKING:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

ANSWER_WITHIN = 2.0
"""Seconds. Little of a grace period, and far more than a request to an API server that answers at all."""

log = logging.getLogger(__name__)


class Terminator(enum.Enum):
    """Who has the worker terminated."""

    INFRASTRUCTURE = "infrastructure"
    """Airflow wants the task to run: nobody asked for the end of its worker."""
    USER = "user"
    """Airflow does not want this run any more: it was cleared, marked or removed."""
    UNKNOWN = "unknown"
    """Airflow did not answer."""


_WANTED = frozenset(
    {TaskInstanceState.RUNNING, TaskInstanceState.QUEUED, TaskInstanceState.SCHEDULED},
)
"""
States of a task that is to run. QUEUED and SCHEDULED: the executor has already replaced this worker. A user's
clear makes a running task RESTARTING, and it stays that until its worker has ended.
"""


def find_terminator(ti: RuntimeTaskInstance) -> Terminator:
    """
    Ask Airflow for the state of this task instance, and say who has its worker terminated.

    The supervisor goes on serving its task process while it waits for it to end. Must not be called in a
    signal handler: the connection to the supervisor has a lock that the interrupted code may hold.
    """
    answers: SimpleQueue[Terminator] = SimpleQueue()
    # The supervisor repeats a request to an API server that is away, for minutes: a request cannot be timed.
    asking = Thread(target=lambda: answers.put(_ask(ti)), name="termination-own-state", daemon=True)
    try:
        asking.start()
        return answers.get(timeout=ANSWER_WITHIN)
    except (
        Empty,
        RuntimeError,
    ):  # No answer; no thread for the question, as in a container out of processes.
        log.warning("Airflow did not say within %g seconds whether it still wants this task", ANSWER_WITHIN)
        return Terminator.UNKNOWN


def _ask(ti: RuntimeTaskInstance) -> Terminator:
    map_index = -1 if ti.map_index is None else ti.map_index
    # Airflow's own words: the states of mapped task instances are told apart by their index.
    name = ti.task_id if map_index < 0 else f"{ti.task_id}_{map_index}"
    try:
        states = ti.get_task_states(
            dag_id=ti.dag_id, map_index=map_index, task_ids=[ti.task_id], run_ids=[ti.run_id]
        )
        state = states.get(ti.run_id, {}).get(name)
    except Exception:
        log.exception("Airflow could not be asked for the state of the task that is being terminated")
        return Terminator.UNKNOWN
    return Terminator.INFRASTRUCTURE if state in _WANTED else Terminator.USER
