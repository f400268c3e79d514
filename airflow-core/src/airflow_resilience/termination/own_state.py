# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What Airflow says about the task instance of this very process, asked while its worker is terminated."""

from __future__ import annotations

import _thread
import enum
import logging
import sys
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from airflow.sdk import DagRunState, TaskInstanceState
from airflow.sdk.execution_time.comms import CommsDecoder

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)

if TYPE_CHECKING:
    from types import FrameType

    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

ANSWER_WITHIN = 2.0
"""Seconds. Little of a grace period, and far more than a request to an API server that answers at all."""

HAS_LOCK = hasattr(CommsDecoder, "_thread_lock")
"""Whether the threads of a task ask its supervisor one after another."""

log = logging.getLogger(__name__)


class Terminator(enum.Enum):
    """Who has the worker terminated."""

    INFRASTRUCTURE = "infrastructure"
    """Airflow wants the task to run: nobody asked for the end of its worker."""
    USER = "user"
    """Airflow does not want this run any more: it was cleared, marked or removed."""
    UNKNOWN = "unknown"
    """Airflow did not answer."""


_WANTED = frozenset({TaskInstanceState.RUNNING, TaskInstanceState.QUEUED, TaskInstanceState.SCHEDULED})
"""
States of a task that is to run. QUEUED and SCHEDULED: the executor has already replaced this worker. A user's
clear makes a running task RESTARTING, and it stays that until its worker has ended.
"""


class Answer(NamedTuple):
    """What Airflow says."""

    terminator: Terminator
    context: ExecutionContext | None = None
    """Why the worker is being terminated; None if that is unknown."""


_UNKNOWN = Answer(Terminator.UNKNOWN)
_INFRASTRUCTURE = Answer(
    Terminator.INFRASTRUCTURE,
    ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_TERMINATION, ContextSource.WORKER
    ),
)


def ask_airflow(ti: RuntimeTaskInstance, unanswered: list[SimpleQueue[Answer]] | None = None) -> Answer:
    """
    Ask Airflow for the state of this task instance, and say who has its worker terminated, and why.

    The supervisor goes on serving its task process while it waits for it to end. May be called in a signal
    handler: if the code that is interrupted waits for the supervisor itself, there is no answer.

    :param unanswered: the question whose answer an earlier call did not wait for. It is not asked again: an
        API server may take longer for each answer than is waited.
    """
    unanswered = [] if unanswered is None else unanswered
    answers = unanswered.pop() if unanswered else None
    if answers is None and _would_mix_answers():
        log.warning("The task waits for an answer of Airflow itself, which cannot be asked for its state")
        return _UNKNOWN
    try:
        answers = answers or _begin_to_ask(ti)
        return answers.get(timeout=ANSWER_WITHIN)
    except (Empty, RuntimeError):  # no answer; no thread for the question, as in a container out of processes
        if answers:
            unanswered.append(answers)
        log.warning("Airflow did not say within %g seconds whether it still wants this task", ANSWER_WITHIN)
        return _UNKNOWN


def _begin_to_ask(ti: RuntimeTaskInstance) -> SimpleQueue[Answer]:
    answers: SimpleQueue[Answer] = SimpleQueue()
    # The supervisor repeats a request to an API server that is away, for minutes: a request cannot be timed.
    # Not a Thread, which waits for locks that the interrupted code may hold until it has begun.
    _thread.start_new_thread(lambda: answers.put(_ask(ti)), ())
    return answers


def _would_mix_answers() -> bool:
    """Whether a question is under way that this one may not wait for."""
    # From Airflow 3.2 on the code that is interrupted holds a lock, and other threads give it back. Before
    # that there is none, and the answer to one question would be taken for that to the other.
    frames = [sys._getframe()] if HAS_LOCK else sys._current_frames().values()
    return any(map(_is_asking, frames))


def _is_asking(frame: FrameType | None) -> bool:
    while frame and frame.f_code is not CommsDecoder.send.__code__:
        frame = frame.f_back
    return frame is not None


def _ask(ti: RuntimeTaskInstance) -> Answer:
    map_index = -1 if ti.map_index is None else ti.map_index
    # Airflow's own words: the states of mapped task instances are told apart by their index.
    name = ti.task_id if map_index < 0 else f"{ti.task_id}_{map_index}"
    try:
        states = ti.get_task_states(
            dag_id=ti.dag_id, map_index=map_index, task_ids=[ti.task_id], run_ids=[ti.run_id]
        )
        state = states.get(ti.run_id, {}).get(name)
        if state in _WANTED:
            return _INFRASTRUCTURE
        return Answer(Terminator.USER, _explain(state, ti))
    except (EOFError, OSError):
        # Whoever acts by way of Airflow leaves the supervisor alive, which has the task end then. Before
        # Airflow 3.3 it dies of the signal that the infrastructure sends to all processes of a worker.
        log.warning("The supervisor of this task is gone: its worker is being terminated")
        return _INFRASTRUCTURE
    except Exception:
        log.exception("Airflow could not be asked for the state of the task that is being terminated")
        return _UNKNOWN


def _explain(state: str | None, ti: RuntimeTaskInstance) -> ExecutionContext:
    """Say why Airflow does not want a task any more, by the state that it has given it."""
    category, source = StateChangeCategory.USER_ACTION, ContextSource.API
    reason = StateChangeReason.MANUAL_STATE_CHANGE
    if state == TaskInstanceState.RESTARTING:
        reason = StateChangeReason.MANUAL_CLEAR
    elif state == TaskInstanceState.UP_FOR_RETRY:
        # Only the scheduler does that to a task that runs: it has not heard of its worker.
        category, source = StateChangeCategory.TIMEOUT, ContextSource.SCHEDULER
        reason = StateChangeReason.WORKER_LOST
    elif (
        state == TaskInstanceState.SKIPPED
        and ti.get_dagrun_state(dag_id=ti.dag_id, run_id=ti.run_id) == DagRunState.FAILED
    ):
        # The scheduler does that to what runs when the time of a DAG run is over.
        category, source = StateChangeCategory.TIMEOUT, ContextSource.SCHEDULER
        reason = StateChangeReason.DAG_RUN_TIMEOUT
    return ExecutionContext(category, reason, source, {MetadataKey.STATE.value: str(state or "removed")})
