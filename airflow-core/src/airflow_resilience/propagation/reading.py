# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Functions for operators, callbacks and templates."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_resilience.context import ExecutionContext
from airflow_resilience.propagation.stored import PREVIOUS_FAILURE, XCOM_KEY, XCOM_KEYS, StoredContext

if TYPE_CHECKING:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from airflow_resilience.propagation.observer import FailureObserver

log = logging.getLogger(__name__)


class _Process:
    """State of this process."""

    observer: FailureObserver | None = None
    """Observer of this process's task; None in a process without a task."""


def observe(observer: FailureObserver) -> None:
    """Set the observer of this process's task."""
    _Process.observer = observer


def observer_of(ti: Any) -> FailureObserver | None:
    """Return the observer of a task instance; None for a task of another process."""
    observer = _Process.observer
    return observer if observer and observer.ti_id == str(ti.id) else None


def new_observer(ti: RuntimeTaskInstance) -> FailureObserver:
    """Return a new observer of this process's task, not active yet."""
    # Only a worker needs their imports.
    from airflow_resilience.propagation.observer import FailureObserver  # noqa: PLC0415
    from airflow_resilience.termination.own_state import ask_airflow  # noqa: PLC0415

    return FailureObserver(
        ti.task,
        ti_id=str(ti.id),
        ask=functools.partial(ask_airflow, ti, []),
        store=functools.partial(store, ti),
    )


def explain(ti: RuntimeTaskInstance, error: BaseException | None) -> ExecutionContext:
    """
    Return why the task of this process has failed. The first call stores the context.

    :param error: the exception that has ended the task; None if Airflow knows of no exception
    """
    if not (observer := observer_of(ti)):
        # The task has failed before its start, with an error in a template for example.
        observer = new_observer(ti)
        observe(observer)
    return observer.explain(error)


def current_termination() -> ExecutionContext | None:
    """
    Return why the task of this process is being terminated.

    For code that runs then: ``on_kill()``, and a ``finally`` of ``execute()``. The first call asks
    Airflow, and may take two seconds.

    :return: None without a termination, or without an answer of Airflow
    """
    return _Process.observer.termination if _Process.observer else None


def execution_context(context: Mapping[str, Any]) -> ExecutionContext | None:
    """
    Return why a task has failed, in its ``on_failure_callback`` or ``on_retry_callback``.

    :param context: context argument of the callback
    :return: None if unknown
    """
    ti = context.get("ti")
    if ti is None:
        return None  # a callback of a DAG run
    error = context.get("exception")
    # Only a worker has the exception itself.
    if isinstance(error, BaseException):
        return explain(ti, error)
    return None if observer_of(ti) else _read_stored(ti)


def previous_failure(context: Mapping[str, Any]) -> ExecutionContext | None:
    """
    Return why the previous run of a task has ended: the run of the previous try, or a lost one.

    :param context: context of the running task
    :return: None without a previous run, or without a known reason
    """
    ti = context.get("ti")
    previous = None if ti is None else read_previous_run(ti)
    return previous.context if previous else None


def read_previous_run(ti: Any) -> StoredContext | None:
    """Return the end of the previous run, which the executor passes to this worker; None without one."""
    previous = StoredContext.from_json(os.environ.get(PREVIOUS_FAILURE))
    # A process that the task has started may run another task.
    return previous if previous and previous.ti_id == str(ti.id) else None


def store(ti: Any, context: ExecutionContext) -> None:
    """
    Store why a task has failed, from its worker.

    :raises Exception: as Airflow's client does
    """
    from airflow.sdk.bases.xcom import BaseXCom  # noqa: PLC0415 - only in a worker

    stored = StoredContext(str(ti.id), ti.try_number, context)
    # Other processes read the context from the database, and not from the configured backend.
    BaseXCom.set(XCOM_KEY, stored.to_json(), **_place(ti))


def _read_stored(ti: Any) -> ExecutionContext | None:
    from airflow.sdk.bases.xcom import BaseXCom  # noqa: PLC0415 - not in every process that imports this

    carried = StoredContext.from_dict((getattr(ti, "context_carrier", None) or {}).get(XCOM_KEY))
    if carried:
        return carried.context
    try:
        found = [StoredContext.from_json(BaseXCom.get_one(key=key, **_place(ti))) for key in XCOM_KEYS]
    except Exception:
        log.exception("Airflow could not be asked why the task has failed")
        return None
    # The context of an earlier failure remains if the next run has never begun.
    own = (str(ti.id), ti.try_number)
    return next((item.context for item in found if item and (item.ti_id, item.try_number) == own), None)


def _place(ti: Any) -> dict[str, Any]:
    map_index = -1 if ti.map_index is None else ti.map_index
    return {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id, "map_index": map_index}
