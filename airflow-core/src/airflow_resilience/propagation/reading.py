# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What operators, callbacks and templates ask for."""

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
    """What is known in this process."""

    observer: FailureObserver | None = None
    """Observes the task that runs here; None in a process that runs no task."""


def observe(observer: FailureObserver) -> None:
    """Have this process know of the task that it runs."""
    _Process.observer = observer


def observer_of(ti: Any) -> FailureObserver | None:
    """Return what observes a task instance; None if it does not run in this process."""
    observer = _Process.observer
    return observer if observer and observer.ti_id == str(ti.id) else None


def new_observer(ti: RuntimeTaskInstance) -> FailureObserver:
    """Return what observes the task that this process runs, and does not do so yet."""
    # Nothing but a worker needs what these import.
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
    Say why the task has failed that this process runs. It is stored when that is first asked.

    :param error: the exception with which it has ended; None if Airflow knows of none
    """
    if not (observer := observer_of(ti)):
        # It has failed before Airflow said that it runs: its templates could not be rendered, for example.
        observer = new_observer(ti)
        observe(observer)
    return observer.explain(error)


def current_termination() -> ExecutionContext | None:
    """
    Return why the task of this process is being ended.

    For code that runs then: ``on_kill()``, and a ``finally`` of ``execute()``. The first call asks
    Airflow, and may take two seconds.

    :return: None if it is not being ended, or if Airflow does not say why
    """
    return _Process.observer.termination if _Process.observer else None


def execution_context(context: Mapping[str, Any]) -> ExecutionContext | None:
    """
    Return why a task has failed, in its ``on_failure_callback`` or ``on_retry_callback``.

    :param context: what Airflow has called the callback with
    :return: None if that is not known
    """
    ti = context.get("ti")
    if ti is None:
        return None  # that of a DAG run
    error = context.get("exception")
    # Only a worker has the exception itself.
    if isinstance(error, BaseException):
        return explain(ti, error)
    return None if observer_of(ti) else _read_stored(ti)


def previous_failure(context: Mapping[str, Any]) -> ExecutionContext | None:
    """
    Return why the run of a task before this one has ended: that of the try before, or one that was lost.

    :param context: what the task runs with
    :return: None if there was none, or if that is not known
    """
    ti = context.get("ti")
    previous = None if ti is None else read_previous_run(ti)
    return previous.context if previous else None


def read_previous_run(ti: Any) -> StoredContext | None:
    """Return how the run before has ended, as the executor says to this worker; None if there was none."""
    previous = StoredContext.from_json(os.environ.get(PREVIOUS_FAILURE))
    # A process that the task has started may run another one.
    return previous if previous and previous.ti_id == str(ti.id) else None


def store(ti: Any, context: ExecutionContext) -> None:
    """
    Store why a task has failed, in the worker that runs it.

    :raises Exception: what Airflow's client raises, if Airflow does not take it
    """
    from airflow.sdk.bases.xcom import BaseXCom  # noqa: PLC0415 - only in a worker

    stored = StoredContext(str(ti.id), ti.try_number, context)
    # Not the configured backend: what others read has to be in the database.
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
    # An earlier failure leaves one behind, if what follows has never begun.
    own = (str(ti.id), ti.try_number)
    return next((item.context for item in found if item and (item.ti_id, item.try_number) == own), None)


def _place(ti: Any) -> dict[str, Any]:
    map_index = -1 if ti.map_index is None else ti.map_index
    return {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id, "map_index": map_index}
