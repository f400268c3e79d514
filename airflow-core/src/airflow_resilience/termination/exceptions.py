# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Meanings of exceptions that end a task, in the words of AIP-97: pure.

Airflow's own exceptions are recognised by name: their modules have changed since 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)

MESSAGE_LIMIT = 1000
"""Characters of an exception's message that are kept: its beginning."""

_TIMEOUTS = frozenset({"AirflowTaskTimeout", "AirflowSensorTimeout", "TaskDeferralTimeout"})
_RESULTS = frozenset(
    {
        "AirflowRescheduleException",
        "AirflowSkipException",
        "DagRunTriggerException",
        "DownstreamTasksSkipped",
        "TaskAwaitingInput",
        "TaskDeferred",
    }
)
_COMMUNICATION = "airflow.sdk.execution_time.comms"
"""The module by which a task communicates with its supervisor, and so with Airflow."""


def is_result(error: BaseException) -> bool:
    """Return whether an exception is a result, and no failure."""
    return not _RESULTS.isdisjoint(_airflows_names(error))


def explain(error: BaseException | None, *, mask: Callable[[str], str] = str) -> ExecutionContext:
    """
    Return the context of an exception that has ended a task, in its worker.

    :param error: None if Airflow knows of no exception
    :param mask: masks secrets in the message, before the message is cut: the beginning of a secret is secret
        too
    """
    category, reason = _classify(error)
    return ExecutionContext(category, reason, ContextSource.WORKER, _metadata(error, mask))


def _classify(error: BaseException | None) -> tuple[StateChangeCategory, StateChangeReason]:
    if error is None:
        return StateChangeCategory.APPLICATION, StateChangeReason.UNKNOWN
    if not _TIMEOUTS.isdisjoint(_airflows_names(error)):
        return StateChangeCategory.TIMEOUT, StateChangeReason.EXECUTION_TIMEOUT
    if _could_not_reach_airflow(error):
        return StateChangeCategory.INFRASTRUCTURE, StateChangeReason.DB_CONNECTION_ERROR
    if isinstance(error, MemoryError):
        return StateChangeCategory.APPLICATION, StateChangeReason.RESOURCE_EXHAUSTION
    return StateChangeCategory.APPLICATION, StateChangeReason.TASK_ERROR


def _airflows_names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("airflow.")}


def _could_not_reach_airflow(error: BaseException) -> bool:
    if "AirflowRuntimeError" in _airflows_names(error):
        response = getattr(error, "error", None)
        kind = getattr(getattr(response, "error", None), "value", None)
        return kind == "API_SERVER_ERROR" and _is_servers_fault(getattr(response, "detail", None))
    # Before Airflow 3.3 a supervisor that cannot reach the API server closes the connection.
    return isinstance(error, OSError | EOFError) and _raised_in(error.__traceback__) == _COMMUNICATION


def _is_servers_fault(detail: Any) -> bool:
    """Return whether there was no answer, or a server error."""
    status = detail.get("status_code") if isinstance(detail, dict) else None
    return status is None or (isinstance(status, int) and status >= 500)


def _raised_in(traceback: TracebackType | None) -> str | None:
    """Return the module that has raised an exception."""
    module = None
    while traceback:
        module, traceback = traceback.tb_frame.f_globals.get("__name__"), traceback.tb_next
    return module


def _metadata(error: BaseException | None, mask: Callable[[str], str]) -> dict[str, Any]:
    if error is None:
        return {}
    kind = type(error)
    metadata: dict[str, Any] = {MetadataKey.EXCEPTION.value: f"{kind.__module__}.{kind.__qualname__}"}
    if message := _text(error, mask):
        metadata[MetadataKey.MESSAGE.value] = message
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        metadata[MetadataKey.EXIT_CODE.value] = int(error.code)  # sys.exit(True) is 1
    return metadata


def _text(error: BaseException, mask: Callable[[str], str]) -> str:
    try:
        text = mask(str(error))
    except Exception:  # noqa: BLE001 - it is the user's code, and its failure says nothing about the task
        return ""
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}…"
