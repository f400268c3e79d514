# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow tells this listener that a task has failed; it tells others why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.propagation import listeners
from airflow_resilience.propagation.reading import explain

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk import TaskInstanceState
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from airflow_resilience.propagation.audit import Known

log = logging.getLogger(__name__)


# First: an exception of another listener would keep this one from being called.
@hookimpl(tryfirst=True)
def on_task_instance_failed(
    previous_state: TaskInstanceState | None,
    task_instance: RuntimeTaskInstance | TaskInstance,
    error: str | BaseException | None,
) -> None:
    """Tell the listeners of our own hook why."""
    # An exception would keep Airflow's other listeners from being called.
    try:
        in_worker = _runs_here(task_instance)
        context = (
            explain(task_instance, error if isinstance(error, BaseException) else None)
            if in_worker
            else _in_database(task_instance, error, is_manual=previous_state is None)
        )
    except Exception:
        log.exception("Nobody is told why a task has failed: that could not be found out, or not stored")
        return
    listeners.call(
        "on_task_instance_failed_with_context",
        in_worker=in_worker,
        previous_state=previous_state,
        task_instance=task_instance,
        error=error,
        execution_context=context,
    )


def _runs_here(ti: Any) -> bool:
    """Whether this process runs the task. Elsewhere a task instance is a row of the database."""
    return any(kind.__name__ == "RuntimeTaskInstance" for kind in type(ti).__mro__)


def _in_database(ti: Any, error: str | BaseException | None, *, is_manual: bool) -> ExecutionContext:
    """Return why a task instance has failed, which is stored then."""
    from airflow_resilience.propagation import audit  # noqa: PLC0415 - a worker has no database

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
        context = _guess(known, str(error or ""))
    audit.record(ti, context)
    return context


def _guess(known: Known, message: str) -> ExecutionContext:
    """Return what the scheduler knows of a failure that an executor has reported without a reason."""
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
        # Nothing speaks against the task: its worker reports what it has done.
        else (StateChangeCategory.INFRASTRUCTURE, StateChangeReason.UNKNOWN)
    )
    return ExecutionContext(category, reason, ContextSource.SCHEDULER, metadata)
