# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from socket import socketpair
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import CommsDecoder, ErrorResponse, GetVariable, _ResponseFrame

from airflow_resilience.context import MetadataKey
from airflow_resilience.termination import own_state
from airflow_resilience.termination.own_state import Terminator, ask_airflow


class Ti:
    """A task instance whose supervisor answers with these states, by the names that Airflow gives them."""

    dag_id, run_id, task_id = "dag", "run", "task"

    def __init__(
        self, states: dict[str, str | None], map_index: int | None = -1, *, run_state: str = "running"
    ) -> None:
        self._states, self.map_index, self._run_state = states, map_index, run_state

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        assert (dag_id, run_id) == ("dag", "run")
        return self._run_state

    def get_task_states(self, **criteria: Any) -> dict[str, Any]:
        assert criteria["dag_id"] == "dag"
        assert criteria["task_ids"] == ["task"]
        assert criteria["run_ids"] == ["run"]
        return {"run": self._states} if self._states else {}


@pytest.mark.parametrize("state", ["running", "queued", "scheduled"])
def test_nobody_asked_for_the_end_of_a_task_that_is_to_run(state):
    assert ask_airflow(Ti({"task": state})).terminator is Terminator.INFRASTRUCTURE


@pytest.mark.parametrize("state", ["restarting", "failed", "success", "removed", "up_for_retry", None])
def test_a_user_has_ended_a_run_that_airflow_does_not_want_any_more(state):
    assert ask_airflow(Ti({"task": state})).terminator is Terminator.USER


def test_a_user_has_deleted_what_airflow_does_not_know():
    assert ask_airflow(Ti({})).terminator is Terminator.USER


@pytest.mark.parametrize("map_index", [0, 7])
def test_a_mapped_task_instance_asks_for_itself(map_index):
    states = {"task_0": "failed", "task_7": "failed"} | {f"task_{map_index}": "running"}
    assert ask_airflow(Ti(states, map_index)).terminator is Terminator.INFRASTRUCTURE


def test_a_task_instance_without_an_index_is_not_mapped():
    assert ask_airflow(Ti({"task": "running"}, None)).terminator is Terminator.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("state", "run_state", "expected"),
    [
        ("running", "running", ("INFRASTRUCTURE", "WORKER_TERMINATION", "WORKER", None)),
        ("restarting", "running", ("USER_ACTION", "MANUAL_CLEAR", "API", "restarting")),
        ("failed", "failed", ("USER_ACTION", "MANUAL_STATE_CHANGE", "API", "failed")),
        ("success", "running", ("USER_ACTION", "MANUAL_STATE_CHANGE", "API", "success")),
        (None, "running", ("USER_ACTION", "MANUAL_STATE_CHANGE", "API", "removed")),
        ("skipped", "running", ("USER_ACTION", "MANUAL_STATE_CHANGE", "API", "skipped")),
        ("skipped", "failed", ("TIMEOUT", "DAG_RUN_TIMEOUT", "SCHEDULER", "skipped")),
        ("up_for_retry", "running", ("TIMEOUT", "WORKER_LOST", "SCHEDULER", "up_for_retry")),
    ],
)
def test_why_it_is_terminated(state, run_state, expected):
    context = ask_airflow(Ti({"task": state}, run_state=run_state)).context
    found = (context.category, context.reason, context.source, context.metadata.get(MetadataKey.STATE))
    assert found == expected


def test_asked_in_a_signal_handler_that_interrupts_a_question_it_is_unknown():
    """Before Airflow 3.2 the answer to one of two questions is taken for that to the other."""
    connection, supervisor = socketpair()
    answers: list[Terminator] = []

    class Asked(Ti):
        def get_task_states(self, **criteria: Any) -> dict[str, Any]:
            raise AssertionError("another question is under way")

    def serve() -> None:
        supervisor.recv(4096)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
        while not answers:
            time.sleep(0.01)
        supervisor.sendall(_ResponseFrame(0).as_bytes())

    def on_term(*_: Any) -> None:
        answers.append(ask_airflow(Asked({"task": "running"})).terminator)

    before = signal.signal(signal.SIGTERM, on_term)
    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        with connection, supervisor:
            assert CommsDecoder(socket=connection).send(GetVariable(key="a")) is None
            serving.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert answers == [Terminator.UNKNOWN]


def test_it_is_unknown_without_a_lock_while_another_thread_asks(monkeypatch):
    """As before Airflow 3.2."""
    monkeypatch.setattr(own_state, "HAS_LOCK", False)
    connection, supervisor = socketpair()
    with connection, supervisor, ThreadPoolExecutor() as threads:
        asking = threads.submit(CommsDecoder(socket=connection).send, GetVariable(key="a"))
        supervisor.recv(4096)
        assert ask_airflow(Ti({"task": "running"})).terminator is Terminator.UNKNOWN
        supervisor.sendall(_ResponseFrame(0).as_bytes())
        assert asking.result() is None
    assert ask_airflow(Ti({"task": "running"})).terminator is Terminator.INFRASTRUCTURE


@pytest.mark.parametrize("error", [EOFError("Request socket closed before length"), BrokenPipeError()])
def test_nobody_but_infrastructure_ends_the_supervisor_too(error, caplog):
    class Alone(Ti):
        def get_task_states(self, **criteria: Any) -> dict[str, Any]:
            raise error

    assert ask_airflow(Alone({})).terminator is Terminator.INFRASTRUCTURE
    assert "is gone" in caplog.text


def test_it_is_unknown_if_airflow_cannot_be_asked(caplog):
    class Disconnected(Ti):
        def get_task_states(self, **criteria: Any) -> dict[str, Any]:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    assert ask_airflow(Disconnected({})).terminator is Terminator.UNKNOWN
    assert "could not be asked" in caplog.text


def test_it_is_unknown_if_there_is_no_thread_for_the_question(monkeypatch, caplog):
    def start(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(own_state._thread, "start_new_thread", start)
    assert ask_airflow(Ti({"task": "running"})).terminator is Terminator.UNKNOWN
    assert "did not say" in caplog.text


def test_it_is_unknown_if_airflow_takes_too_long(monkeypatch):
    monkeypatch.setattr(own_state, "ANSWER_WITHIN", 0.01)
    answer = threading.Event()

    class Silent(Ti):
        def get_task_states(self, **criteria: Any) -> dict[str, Any]:
            answer.wait(60)
            return super().get_task_states(**criteria)

    try:
        assert ask_airflow(Silent({"task": "running"})).terminator is Terminator.UNKNOWN
    finally:
        answer.set()


def test_answer_that_comes_late_counts_when_it_is_asked_again(monkeypatch):
    """An API server that takes longer for each answer than is waited would never be heard otherwise."""
    monkeypatch.setattr(own_state, "ANSWER_WITHIN", 0.01)
    answer, asked, unanswered = threading.Event(), [], []

    class Slow(Ti):
        def get_task_states(self, **criteria: Any) -> dict[str, Any]:
            asked.append(criteria)
            answer.wait(60)
            return super().get_task_states(**criteria)

    ti = Slow({"task": "running"})
    assert ask_airflow(ti, unanswered).terminator is Terminator.UNKNOWN
    assert ask_airflow(ti, unanswered).terminator is Terminator.UNKNOWN
    answer.set()
    monkeypatch.setattr(own_state, "ANSWER_WITHIN", 60)
    assert ask_airflow(ti, unanswered).terminator is Terminator.INFRASTRUCTURE
    assert (len(asked), unanswered) == (1, [])
