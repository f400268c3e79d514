# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Counts tasks that have failed, and notifies the listeners of our own hook of the reason."""

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
    Return what implements Airflow's hook, and notifies the listeners of our own hook.

    They get Airflow's own context, if Airflow has one.

    :param specifications: those of ``on_task_instance_failed``; an implementation may have no argument that
        one of them does not have, or Airflow could not load any plugin
    """
    brings_context = [ARGUMENT in inspect.signature(item).parameters for item in specifications]

    # First: an exception of another listener would keep this one from being called.
    @hookimpl(tryfirst=True)
    def with_context(
        previous_state: TaskInstanceState | None,
        task_instance: RuntimeTaskInstance | TaskInstance,
        error: str | BaseException | None,
        execution_context: Any,
    ) -> None:
        _notify(previous_state, task_instance, error, execution_context)

    @hookimpl(tryfirst=True)
    def without_context(
        previous_state: TaskInstanceState | None,
        task_instance: RuntimeTaskInstance | TaskInstance,
        error: str | BaseException | None,
    ) -> None:
        _notify(previous_state, task_instance, error, None)

    return with_context if brings_context and all(brings_context) else without_context


def _specifications() -> list[Callable[..., Any]]:
    found = []
    for name in _SPECIFICATIONS:
        with suppress(ImportError, AttributeError):
            found.append(import_module(name).on_task_instance_failed)
    return found


on_task_instance_failed = implementation(_specifications())


def _notify(
    previous_state: TaskInstanceState | None,
    task_instance: RuntimeTaskInstance | TaskInstance,
    error: str | BaseException | None,
    airflows: Any,
) -> None:
    """Count a failure, and notify the listeners of our own hook."""
    # An exception would keep Airflow's other listeners from being called.
    try:
        in_worker = _runs_here(task_instance)
        context = (
            explain(task_instance, error if isinstance(error, BaseException) else None)
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
