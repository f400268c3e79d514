# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Asks Airflow for the state of this process's task instance while its worker is terminated."""

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
"""Seconds: a small part of a grace period, and far more than a request to a healthy API server takes."""

HAS_LOCK = hasattr(CommsDecoder, "_thread_lock")
"""Whether a lock serialises the requests of a task's threads to its supervisor."""

log = logging.getLogger(__name__)


class Terminator(enum.Enum):
    """Parties that terminate a worker."""

    INFRASTRUCTURE = "infrastructure"
    """Airflow wants the task to run: no user has asked for the termination."""
    USER = "user"
    """The task instance was cleared, marked or removed."""
    UNKNOWN = "unknown"
    """Airflow did not answer."""


_WANTED = frozenset({TaskInstanceState.RUNNING, TaskInstanceState.QUEUED, TaskInstanceState.SCHEDULED})
"""
States of a task that is to run. QUEUED and SCHEDULED: the executor has already replaced this worker. A user's
clear makes a running task RESTARTING until its worker has ended.
"""


class Answer(NamedTuple):
    """Airflow's answer."""

    terminator: Terminator
    context: ExecutionContext | None = None
    """Reason of the termination; None if unknown."""


_UNKNOWN = Answer(Terminator.UNKNOWN)
_INFRASTRUCTURE = Answer(
    Terminator.INFRASTRUCTURE,
    ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_TERMINATION, ContextSource.WORKER
    ),
)


def ask_airflow(ti: RuntimeTaskInstance, unanswered: list[SimpleQueue[Answer]] | None = None) -> Answer:
    """
    Ask Airflow for the state of this task instance, and return who terminates its worker, and why.

    The supervisor still serves its terminating task process. May be called in a signal handler: there is no
    answer if the interrupted code waits for the supervisor itself.

    :param unanswered: the unanswered request of an earlier call. The request is not repeated: an API server
        may take longer for each answer than this function waits.
    """
    unanswered = [] if unanswered is None else unanswered
    answers = unanswered.pop() if unanswered else None
    if answers is None and _would_mix_answers():
        log.warning("The task waits for an answer of Airflow itself, which cannot be asked for its state")
        return _UNKNOWN
    try:
        answers = answers or _begin_to_ask(ti)
        return answers.get(timeout=ANSWER_WITHIN)
    except (Empty, RuntimeError):  # no answer; no thread for the request, as in a container out of processes
        if answers:
            unanswered.append(answers)
        log.warning("Airflow did not say within %g seconds whether it still wants this task", ANSWER_WITHIN)
        return _UNKNOWN


def _begin_to_ask(ti: RuntimeTaskInstance) -> SimpleQueue[Answer]:
    answers: SimpleQueue[Answer] = SimpleQueue()
    # The supervisor repeats a failing request for minutes, and a request has no timeout. A Thread would wait
    # at its start for locks that the interrupted code may hold.
    _thread.start_new_thread(lambda: answers.put(_ask(ti)), ())
    return answers


def _would_mix_answers() -> bool:
    """Return whether another request is under way for whose answer this one may not wait."""
    # From Airflow 3.2 on a lock serialises requests: only the interrupted code cannot release it. Before 3.2,
    # the answers to two requests would be mixed up.
    frames = [sys._getframe()] if HAS_LOCK else sys._current_frames().values()
    return any(map(_is_asking, frames))


def _is_asking(frame: FrameType | None) -> bool:
    while frame and frame.f_code is not CommsDecoder.send.__code__:
        frame = frame.f_back
    return frame is not None


def _ask(ti: RuntimeTaskInstance) -> Answer:
    map_index = -1 if ti.map_index is None else ti.map_index
    # Airflow's own key: mapped task instances have their index appended.
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
        # A user's action keeps the supervisor alive, which then ends the task. Before Airflow 3.3 the
        # supervisor dies of the signal that infrastructure sends to all processes of a worker.
        log.warning("The supervisor of this task is gone: its worker is being terminated")
        return _INFRASTRUCTURE
    except Exception:
        log.exception("Airflow could not be asked for the state of the task that is being terminated")
        return _UNKNOWN


def _explain(state: str | None, ti: RuntimeTaskInstance) -> ExecutionContext:
    """Return why a run was ended, from the state of its task instance."""
    category, source = StateChangeCategory.USER_ACTION, ContextSource.API
    reason = StateChangeReason.MANUAL_STATE_CHANGE
    if state == TaskInstanceState.RESTARTING:
        reason = StateChangeReason.MANUAL_CLEAR
    elif state == TaskInstanceState.UP_FOR_RETRY:
        # Only the scheduler sets this state of a running task: the worker's heartbeat is missing.
        category, source = StateChangeCategory.TIMEOUT, ContextSource.SCHEDULER
        reason = StateChangeReason.WORKER_LOST
    elif (
        state == TaskInstanceState.SKIPPED
        and ti.get_dagrun_state(dag_id=ti.dag_id, run_id=ti.run_id) == DagRunState.FAILED
    ):
        # The scheduler skips running tasks at the timeout of their DAG run.
        category, source = StateChangeCategory.TIMEOUT, ContextSource.SCHEDULER
        reason = StateChangeReason.DAG_RUN_TIMEOUT
    return ExecutionContext(category, reason, source, {MetadataKey.STATE.value: str(state or "removed")})
