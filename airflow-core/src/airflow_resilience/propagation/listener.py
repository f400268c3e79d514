# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Observes and guards the task of this process, counts tasks that have failed, and notifies our own listeners.

Airflow finds this listener by the plugin.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.sdk import __version__ as sdk_version

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.metrics import count_failure
from airflow_resilience.propagation import listeners, reading
from airflow_resilience.termination.environment import grace_period, runs_again

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk import TaskInstanceState
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from airflow_resilience.propagation.audit import Known
    from airflow_resilience.propagation.observer import FailureObserver

log = logging.getLogger(__name__)

_FORWARDS_SIGTERM = tuple(map(int, sdk_version.split(".")[:2])) == (1, 3)
"""
With Airflow 3.3. Before, the supervisor dies of SIGTERM, and a task cannot report anything after it. The
supervisor of 3.4 lets the task go on for as long as its pod may.
"""


# First: an exception of another listener would keep this one from being called.
@hookimpl(tryfirst=True)
def on_task_instance_running(task_instance: RuntimeTaskInstance) -> None:
    """Observe the task, and arm the guard of a task that runs again after infrastructure takes its worker."""
    # An exception would keep the other listeners from being called. The task runs without observation, too.
    try:
        _announce(task_instance)
    except Exception:
        log.exception("Why the task runs again is not said")
    try:
        observer = _observe(task_instance)
    except Exception:
        log.exception("The task is not observed: why it fails will not be known")
        return
    if _FORWARDS_SIGTERM and runs_again(os.environ):
        try:
            _arm(observer)
        except Exception:
            log.exception("The task is not guarded against reporting its own termination")
    # The observer wraps the guard, and never sees an end that the guard holds back.
    observer.wrap()
    reading.observe(observer)


def _announce(ti: RuntimeTaskInstance) -> None:
    # Only a worker needs its imports.
    from airflow_resilience.propagation.next_run import announce  # noqa: PLC0415

    announce(ti)


def _observe(ti: RuntimeTaskInstance) -> FailureObserver:
    observer = reading.new_observer(ti)
    try:
        observer.handle_signals()
    except ValueError:
        log.debug("Signals go to another thread than that of the task")
    return observer


def _arm(observer: FailureObserver) -> None:
    # Older versions of Airflow lack some of its imports.
    from airflow_resilience.termination.guard import TerminationGuard  # noqa: PLC0415

    TerminationGuard(
        observer.task, find_terminator=observer.find_terminator, grace_period=grace_period(os.environ)
    ).arm()


@hookimpl(tryfirst=True)
def on_task_instance_failed(
    previous_state: TaskInstanceState | None,
    task_instance: RuntimeTaskInstance | TaskInstance,
    error: str | BaseException | None,
) -> None:
    """Count a failure, and notify the listeners of our own hook."""
    # An exception would keep Airflow's other listeners from being called.
    try:
        in_worker = _runs_here(task_instance)
        context = (
            reading.explain(task_instance, error if isinstance(error, BaseException) else None)
            if in_worker
            else _in_database(task_instance, error, is_manual=previous_state is None)
        )
    except Exception:
        log.exception(
            "The listeners of a failed task are not notified: its context could not be read or stored"
        )
        return
    count_failure(context, task_instance.dag_id, in_worker=in_worker)
    listeners.call(
        "on_task_instance_failed_with_context",
        in_worker=in_worker,
        previous_state=previous_state,
        task_instance=task_instance,
        error=error,
        execution_context=context,
    )


def _runs_here(ti: Any) -> bool:
    """Return whether this process runs the task. Elsewhere a task instance is a row of the database."""
    return any(kind.__name__ == "RuntimeTaskInstance" for kind in type(ti).__mro__)


def _in_database(ti: Any, error: str | BaseException | None, *, is_manual: bool) -> ExecutionContext:
    """Return the reason of a task instance's failure, and store a new one."""
    # A worker has no database, and another secrets masker.
    from airflow._shared.secrets_masker import redact  # noqa: PLC0415

    from airflow_resilience.propagation import audit  # noqa: PLC0415

    if is_manual:
        context = ExecutionContext(
            StateChangeCategory.USER_ACTION,
            StateChangeReason.MANUAL_STATE_CHANGE,
            ContextSource.API,
            {MetadataKey.STATE.value: "failed"},
        )
    else:
        known = audit.read(ti)
        if known.stored:
            return known.stored
        context = _guess(known, str(redact(str(error or ""))))
    audit.record(ti, context)
    return context


def _guess(known: Known, message: str) -> ExecutionContext:
    """Return the context of a failure that an executor has reported without a reason."""
    metadata = {MetadataKey.MESSAGE.value: message} if message else {}
    if known.was_cleared:
        return ExecutionContext(
            StateChangeCategory.USER_ACTION,
            StateChangeReason.MANUAL_CLEAR,
            ContextSource.API,
            {MetadataKey.STATE.value: "restarting", **metadata},
        )
    category, reason = (
        (StateChangeCategory.TIMEOUT, StateChangeReason.WORKER_LOST)
        if known.is_silent
        # The task itself has not failed: its worker would have reported the failure.
        else (StateChangeCategory.INFRASTRUCTURE, StateChangeReason.UNKNOWN)
    )
    return ExecutionContext(category, reason, ContextSource.SCHEDULER, metadata)
