# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_resilience.termination.exceptions import MESSAGE_LIMIT, explain, is_result

try:
    from airflow.sdk import exceptions
except ImportError:  # Airflow 3.1
    from airflow import exceptions
if not hasattr(exceptions, "TaskDeferred"):
    from airflow import exceptions


class OwnTimeout(exceptions.AirflowTaskTimeout):
    """An operator may derive its own."""


class AirflowTaskTimeout(Exception):  # noqa: N818 - Airflow's name
    """Somebody else's, of the same name."""


def from_api(status: int | None, kind: ErrorType = ErrorType.API_SERVER_ERROR) -> AirflowRuntimeError:
    return AirflowRuntimeError(ErrorResponse(error=kind, detail={"status_code": status, "message": "x"}))


@pytest.mark.parametrize(
    ("error", "category", "reason"),
    [
        (ValueError("own"), "APPLICATION", "TASK_ERROR"),
        (exceptions.AirflowFailException("own"), "APPLICATION", "TASK_ERROR"),
        (exceptions.AirflowException("own"), "APPLICATION", "TASK_ERROR"),
        (SystemExit(3), "APPLICATION", "TASK_ERROR"),
        (ConnectionError("to the user's database"), "APPLICATION", "TASK_ERROR"),
        (EOFError("of the user's file"), "APPLICATION", "TASK_ERROR"),
        (AirflowTaskTimeout(), "APPLICATION", "TASK_ERROR"),
        (MemoryError(), "APPLICATION", "RESOURCE_EXHAUSTION"),
        (exceptions.AirflowTaskTimeout(), "TIMEOUT", "EXECUTION_TIMEOUT"),
        (exceptions.AirflowSensorTimeout(), "TIMEOUT", "EXECUTION_TIMEOUT"),
        (exceptions.TaskDeferralTimeout(), "TIMEOUT", "EXECUTION_TIMEOUT"),
        (OwnTimeout(), "TIMEOUT", "EXECUTION_TIMEOUT"),
        (from_api(None), "INFRASTRUCTURE", "DB_CONNECTION_ERROR"),
        (from_api(503), "INFRASTRUCTURE", "DB_CONNECTION_ERROR"),
        (from_api(404), "APPLICATION", "TASK_ERROR"),
        (from_api(None, ErrorType.VARIABLE_NOT_FOUND), "APPLICATION", "TASK_ERROR"),
        (None, "APPLICATION", "UNKNOWN"),
    ],
    ids=repr,
)
def test_what_it_means(error, category, reason):
    context = explain(error)
    assert (context.category, context.reason, context.source) == (category, reason, "WORKER")


def test_a_supervisor_that_hangs_up_could_not_reach_airflow():
    code = compile("raise EOFError('Request socket closed before length')", "comms.py", "exec")
    with pytest.raises(EOFError) as raised:
        exec(code, {"__name__": "airflow.sdk.execution_time.comms"})
    assert explain(raised.value).reason == "DB_CONNECTION_ERROR"


def test_what_is_known_of_it():
    assert explain(ValueError("own")).metadata == {"exception": "builtins.ValueError", "message": "own"}
    assert explain(OwnTimeout()).metadata["exception"] == f"{__name__}.OwnTimeout"
    assert explain(SystemExit(3)).metadata["exit_code"] == 3
    assert type(explain(SystemExit(True)).metadata["exit_code"]) is int
    assert "message" not in explain(ValueError()).metadata


def test_a_long_message_is_cut():
    assert explain(ValueError("x" * 5000)).metadata["message"] == "x" * MESSAGE_LIMIT + "…"


def test_an_exception_that_cannot_be_printed_has_no_message():
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert explain(BrokenError()).metadata.keys() == {"exception"}


def test_ways_to_finish_are_no_failures():
    assert is_result(exceptions.AirflowSkipException())
    assert is_result(exceptions.DownstreamTasksSkipped(tasks=[]))
    assert not is_result(exceptions.AirflowFailException())
    assert not is_result(ValueError())
