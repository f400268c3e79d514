# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow tells this listener that a task has failed; it counts that, and tells others why."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.metrics import count_failure
from airflow_resilience.propagation import listeners
from airflow_resilience.propagation.reading import explain

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk import TaskInstanceState
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from airflow_resilience.propagation.audit import Known

log = logging.getLogger(__name__)


ARGUMENT = "execution_context"
"""Name that AIP-97 has for an argument of Airflow's own hook. No released version has it."""

_SPECIFICATIONS = (
    "airflow._shared.listeners.spec.taskinstance",
    "airflow.sdk._shared.listeners.spec.taskinstance",
)
"""Those of Airflow's hooks, for its two listener managers, from 3.2 on."""


def implementation(specifications: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    """
    Return what implements Airflow's hook: it tells the listeners of our own hook why.

    If Airflow itself says why, they are told that.

    :param specifications: those of ``on_task_instance_failed``; an implementation may have no argument that
        one of them does not have, or Airflow could not load any plugin
    """
    brings_context = [ARGUMENT in inspect.signature(item).parameters for item in specifications]

    # First: an exception of another listener would keep this one from being called.
    @hookimpl(tryfirst=True)
    def told_why(
        previous_state: TaskInstanceState | None,
        task_instance: RuntimeTaskInstance | TaskInstance,
        error: str | BaseException | None,
        execution_context: Any,
    ) -> None:
        _tell(previous_state, task_instance, error, execution_context)

    @hookimpl(tryfirst=True)
    def not_told_why(
        previous_state: TaskInstanceState | None,
        task_instance: RuntimeTaskInstance | TaskInstance,
        error: str | BaseException | None,
    ) -> None:
        _tell(previous_state, task_instance, error, None)

    return told_why if brings_context and all(brings_context) else not_told_why


def _specifications() -> list[Callable[..., Any]]:
    found = []
    for name in _SPECIFICATIONS:
        with suppress(ImportError, AttributeError):
            found.append(import_module(name).on_task_instance_failed)
    return found


on_task_instance_failed = implementation(_specifications())


def _tell(
    previous_state: TaskInstanceState | None,
    task_instance: RuntimeTaskInstance | TaskInstance,
    error: str | BaseException | None,
    airflows: Any,
) -> None:
    """Count it, and tell the listeners of our own hook why."""
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
    count_failure(context, task_instance.dag_id, in_worker=in_worker)
    listeners.call(
        "on_task_instance_failed_with_context",
        in_worker=in_worker,
        previous_state=previous_state,
        task_instance=task_instance,
        error=error,
        execution_context=context if airflows is None else airflows,
    )


def _runs_here(ti: Any) -> bool:
    """Whether this process runs the task. Elsewhere a task instance is a row of the database."""
    return any(kind.__name__ == "RuntimeTaskInstance" for kind in type(ti).__mro__)


def _in_database(ti: Any, error: str | BaseException | None, *, is_manual: bool) -> ExecutionContext:
    """Return why a task instance has failed, which is stored then."""
    # A worker has no database, and another masker.
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
