# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A worker that infrastructure terminates does not report what its own end did to the task.

Airflow 3.3 calls the operator's ``on_kill()`` at SIGTERM. That breaks ``execute()`` of many operators, which
then raises, or returns as if it were done; the report of it would be a failure of the task that its retries
pay for, or a success of work that was destroyed. The guard holds such an end back until SIGKILL. The task
instance is still running when the worker is gone, and the executor alone decides what becomes of it.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowTaskTimeout

from airflow_resilience.termination.exceptions import is_result
from airflow_resilience.termination.own_state import Terminator
from airflow_resilience.termination.wrapping import wrap_methods

if TYPE_CHECKING:
    from types import FrameType

MARGIN = 30.0
"""
Seconds after the grace period in which SIGKILL is still expected. On a node in trouble it is late; to report
too early fails a task that was to run again, to wait too long delays one that nobody kills.
"""

ASK_AGAIN = 1.0
"""Seconds between two questions, where Airflow does not answer: all workers of a node ask at once."""

_OWN_ENDS = (AirflowTaskTimeout, AirflowSensorTimeout, KeyboardInterrupt)
"""The task has used up its own time, or a person interrupts it: true whoever terminates the worker."""

log = logging.getLogger(__name__)


class TerminationGuard:
    """
    Guards one operator, once, in the process that runs it.

    :param task: the operator, in the copy that is about to be executed.
    :param find_terminator: says who has the worker terminated.
    :param grace_period: seconds from SIGTERM to SIGKILL.
    """

    def __init__(
        self, task: BaseOperator, *, find_terminator: Callable[[], Terminator], grace_period: float
    ) -> None:
        self._task = task
        self._find_terminator = find_terminator
        self._patience = grace_period + MARGIN
        self._answer_within = grace_period / 2
        self._airflows_handler: Any = None
        self._terminated_at: float | None = None
        self._holding = False
        self._again: SimpleQueue[None] = SimpleQueue()

    def arm(self) -> None:
        """
        Begin. Does nothing if Airflow has set no handler of SIGTERM: then the signal ends the process.

        :raises ValueError: if this is not the main thread, which alone can set a handler; nothing is changed.
        """
        self._airflows_handler = signal.getsignal(signal.SIGTERM)
        if not callable(self._airflows_handler):
            return
        signal.signal(signal.SIGTERM, self._on_sigterm)
        wrap_methods(self._task, self._run)

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        # It interrupts any code: no locks, no logging. put() is made for that.
        if self._holding:
            # on_kill() has been called: what it ends has ended.
            self._again.put(None)
            return
        if self._terminated_at is None:
            self._terminated_at = time.monotonic()
        self._airflows_handler(signum, frame)

    def _run(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except _OWN_ENDS:
            raise
        except BaseException as error:
            if is_result(error):  # raised, but a way to finish: it counts as a normal return does
                self._hold_back_result(type(error).__name__)
            else:
                self._hold_back(type(error).__name__, error)
            raise
        else:
            self._hold_back_result("a normal return")
            return result
        finally:
            # Unless the operator's code has set one of its own, which then outlives it, as without a guard.
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, self._airflows_handler)

    def _hold_back_result(self, end: str) -> None:
        # Without an on_kill() of its own the work was not disturbed: it was done within the grace period.
        if getattr(self._task.on_kill, "__func__", None) is not BaseOperator.on_kill:
            self._hold_back(end)

    def _hold_back(self, end: str, error: BaseException | None = None) -> None:
        if self._terminated_at is None:
            return
        # The timer of execution_timeout is for work that is over, and would end the wait.
        signal.setitimer(signal.ITIMER_REAL, 0)
        deadline = self._terminated_at + self._patience
        self._holding = True
        found = self._ask(self._terminated_at + self._answer_within)
        while found is Terminator.INFRASTRUCTURE:
            log.warning(
                "The worker is being terminated, and nobody asked Airflow for that. The task ended with %s,"
                " which is not reported: the executor decides whether the task runs again.",
                end,
                # No other log will have it: the process is about to be killed.
                exc_info=error,
            )
            try:
                # Airflow sends another SIGTERM if it wants this run no longer.
                self._again.get(timeout=min(max(0.0, deadline - time.monotonic()), TIMEOUT_MAX))
            except Empty:
                log.warning(
                    "The worker was not killed within %g seconds of SIGTERM: the task's end is reported.",
                    self._patience,
                )
                return
            # A kubelet sends another one, too, as when its node goes down during a drain. An Airflow that is
            # slow then has not said anything else.
            again = self._ask(self._terminated_at + self._answer_within)
            found = found if again is Terminator.UNKNOWN else again

    def _ask(self, deadline: float) -> Terminator:
        """Return who has the worker terminated. After the deadline, what is left is for reporting an end."""
        while (found := self._find_terminator()) is Terminator.UNKNOWN and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN)
        return found
