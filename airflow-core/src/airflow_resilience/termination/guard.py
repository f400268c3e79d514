# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Keeps a terminated worker from reporting the consequences of its own termination.

Airflow 3.3 calls the operator's ``on_kill()`` at SIGTERM. The call breaks ``execute()`` of many operators,
which then raises, or returns early. A report would cost a retry of the task, or be a success of destroyed
work. The guard holds such an end back until SIGKILL. The task instance is still running when the worker is
gone, and the executor alone decides about it.
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
Seconds after the grace period in which SIGKILL is still expected. SIGKILL is late on a node in trouble. A
report too early fails a task that was to run again; a report too late delays a task whose worker is not
killed.
"""

ASK_AGAIN = 1.0
"""Seconds between two requests without an answer of Airflow: all workers of a node ask at once."""

_OWN_ENDS = (AirflowTaskTimeout, AirflowSensorTimeout, KeyboardInterrupt)
"""The task's own timeout, or an interrupt by a person, is reported also during a termination."""

log = logging.getLogger(__name__)


class TerminationGuard:
    """
    Guards one operator, once, in the process that runs it.

    :param task: the operator, in the copy that is about to be executed.
    :param find_terminator: returns who terminates the worker.
    :param grace_period: seconds from SIGTERM to SIGKILL.
    """

    def __init__(
        self, task: BaseOperator, *, find_terminator: Callable[[], Terminator], grace_period: float
    ) -> None:
        self._task = task
        self._find_terminator = find_terminator
        self._killed_within = grace_period + MARGIN
        self._answer_within = grace_period / 2
        self._airflows_handler: Any = None
        self._terminated_at: float | None = None
        self._holding = False
        self._again: SimpleQueue[None] = SimpleQueue()

    def arm(self) -> None:
        """
        Begin to guard. Without a handler of Airflow, SIGTERM ends the process, and nothing is changed.

        :raises ValueError: outside the main thread, which alone can set a handler.
        """
        self._airflows_handler = signal.getsignal(signal.SIGTERM)
        if not callable(self._airflows_handler):
            return
        signal.signal(signal.SIGTERM, self._on_sigterm)
        wrap_methods(self._task, self._run)

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        # The handler interrupts any code: no locks, no logging. put() is safe there.
        if self._holding:
            # on_kill() has been called once, and is not called again.
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
            if is_result(error):  # an exception that is a result counts as a normal return does
                self._hold_back_result(type(error).__name__)
            else:
                self._hold_back(type(error).__name__, error)
            raise
        else:
            self._hold_back_result("a normal return")
            return result
        finally:
            # A handler of the operator's code outlives the code, as without a guard.
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, self._airflows_handler)

    def _hold_back_result(self, end: str) -> None:
        # Without an on_kill() of its own, the task has finished its work undisturbed within the grace period.
        if getattr(self._task.on_kill, "__func__", None) is not BaseOperator.on_kill:
            self._hold_back(end)

    def _hold_back(self, end: str, error: BaseException | None = None) -> None:
        if self._terminated_at is None:
            return
        # The timer of execution_timeout is for work that is over, and would end the wait.
        signal.setitimer(signal.ITIMER_REAL, 0)
        deadline = self._terminated_at + self._killed_within
        self._holding = True
        found = self._ask(self._terminated_at + self._answer_within)
        while found is Terminator.INFRASTRUCTURE:
            log.warning(
                "The worker is being terminated, and nobody asked Airflow for that. The task ended with %s,"
                " which is not reported: the executor decides whether the task runs again.",
                end,
                # No other log will have the traceback: the process is about to be killed.
                exc_info=error,
            )
            try:
                # Airflow sends another SIGTERM to a run that was cleared, marked or removed.
                self._again.get(timeout=min(max(0.0, deadline - time.monotonic()), TIMEOUT_MAX))
            except Empty:
                log.warning(
                    "The worker was not killed within %g seconds of SIGTERM: the task's end is reported.",
                    self._killed_within,
                )
                return
            # A kubelet sends another SIGTERM, too, as when its node shuts down during a drain. Without a new
            # answer of Airflow, the earlier one counts.
            again = self._ask(self._terminated_at + self._answer_within)
            found = found if again is Terminator.UNKNOWN else again

    def _ask(self, deadline: float) -> Terminator:
        """Return who terminates the worker. The time after the deadline is for reporting the end."""
        while (found := self._find_terminator()) is Terminator.UNKNOWN and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN)
        return found
