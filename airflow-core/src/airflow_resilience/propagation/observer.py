# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Observes in the process of a task what ends the task.

The operator's code meets itself unchanged: no attribute of the operator is replaced while the code runs.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_resilience.context import ExecutionContext, StateChangeCategory
from airflow_resilience.termination.exceptions import explain, is_result
from airflow_resilience.termination.own_state import Answer, Terminator
from airflow_resilience.termination.wrapping import wrap_methods

if TYPE_CHECKING:
    from types import FrameType

ARGUMENT = "execution_context"
"""Name of the parameter that gives an operator's ``on_kill()`` the reason of its call."""

log = logging.getLogger(__name__)


class FailureObserver:
    """
    Observes one task, once.

    :param task: the operator, in the copy that is about to be executed
    :param ti_id: the task instance's UUID
    :param ask: asks Airflow who terminates the worker
    :param store: stores the context of a failure for other processes
    """

    def __init__(
        self,
        task: BaseOperator,
        *,
        ti_id: str,
        ask: Callable[[], Answer],
        store: Callable[[ExecutionContext], None],
    ) -> None:
        self.task = task
        self.ti_id = ti_id
        self._ask = ask
        self._store = store
        self._pid = os.getpid()
        self._airflows_handler: Any = None
        self._is_ending = False
        self._termination: ExecutionContext | None = None
        self._failure: tuple[BaseException | None, ExecutionContext] | None = None

    def handle_signals(self) -> None:
        """
        Handle SIGTERM from now on. Without a handler of Airflow, nothing is changed.

        :raises ValueError: outside the main thread, which alone can set a handler
        """
        self._airflows_handler = signal.getsignal(signal.SIGTERM)
        if callable(self._airflows_handler):
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def wrap(self) -> None:
        """Notice the end of the operator's code. Earlier wrappers are called inside."""
        wrap_methods(self.task, self._run)

    @property
    def termination(self) -> ExecutionContext | None:
        """
        Reason for which the task is being terminated; None without a termination, or without an answer of
        Airflow.
        """
        if not self._is_ending:
            return _timeout_under_way()
        if self._termination is None:
            self.find_terminator()
        return self._termination

    def find_terminator(self) -> Terminator:
        """Ask Airflow who terminates the worker, and note the answer."""
        answer = self._ask()
        self._termination = answer.context
        return answer.terminator

    def explain(self, error: BaseException | None) -> ExecutionContext:
        """
        Return why the task has failed. The first call stores the context.

        :param error: the exception that has ended the task; None if Airflow knows of no exception
        """
        if self._failure is None or self._failure[0] is not error:
            self._failure = error, self._find_context(error)
            try:
                self._store(self._failure[1])
            except Exception:
                log.exception("Why the task has failed could not be stored")
        return self._failure[1]

    def _find_context(self, error: BaseException | None) -> ExecutionContext:
        context = explain(error, mask=_mask)
        if context.category is StateChangeCategory.TIMEOUT or self.termination is None:
            return context
        # The exception is only a consequence of the termination, whose reason says more.
        return replace(self.termination, metadata={**context.metadata, **self.termination.metadata})

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        # The handler interrupts any code: no locks, no logging.
        if os.getpid() != self._pid:
            # This process is forked by the operator's code. Airflow's handler recognises it, too.
            self._airflows_handler(signum, frame)
            return
        self._is_ending, self._termination = True, None
        with self._passing_to_on_kill():
            self._airflows_handler(signum, frame)

    @contextmanager
    def _passing_to_on_kill(self) -> Iterator[None]:
        """Have the operator's ``on_kill()`` called with the context, if its signature allows."""
        if not _takes_context(self.task.on_kill):
            yield
            return
        before = vars(self.task).get("on_kill")
        self._pass_to_on_kill(self.termination)
        try:
            yield
        finally:
            if before is None:
                del self.task.on_kill
            else:
                setattr(self.task, "on_kill", before)  # noqa: B010 - to mypy it is a method

    def _pass_to_on_kill(self, context: ExecutionContext | None) -> None:
        passing = functools.partial(self.task.on_kill, **{ARGUMENT: context})
        setattr(self.task, "on_kill", passing)  # noqa: B010 - to mypy it is a method

    def _run(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            if not is_result(error):
                if self.task.execution_timeout:
                    # The timeout's timer is for work that is over, and would replace the error.
                    signal.setitimer(signal.ITIMER_REAL, 0)
                self._noticed(error)
            raise
        finally:
            # A handler of the operator's code outlives the code, as without an observer.
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, self._airflows_handler)

    def _noticed(self, error: BaseException) -> None:
        try:
            context = self.explain(error)
            if context.category is StateChangeCategory.TIMEOUT:
                # Airflow calls on_kill() next. The operator's code has ended, so on_kill may stay replaced.
                self._is_ending, self._termination = True, context
                if _takes_context(self.task.on_kill):
                    self._pass_to_on_kill(context)
        except Exception:
            log.exception("Why the task has failed is not known")


def _timeout_under_way() -> ExecutionContext | None:
    """Return the context of a timeout that is being handled: on_kill() is called after a timeout."""
    error = sys.exc_info()[1]
    context = explain(error, mask=_mask) if error else None
    return context if context and context.category is StateChangeCategory.TIMEOUT else None


def _takes_context(on_kill: Callable[..., Any]) -> bool:
    try:
        # A decorator may take fewer arguments than its signature shows; not every parameter can be passed by
        # name.
        inspect.signature(on_kill, follow_wrapped=False).bind(**{ARGUMENT: None})
        return ARGUMENT in inspect.signature(on_kill).parameters
    except (TypeError, ValueError):
        return False


def _mask(text: str) -> str:
    """Return a text without the secrets that Airflow knows."""
    from airflow.sdk._shared.secrets_masker import redact  # noqa: PLC0415 - only for a task that has failed

    return str(redact(text))
