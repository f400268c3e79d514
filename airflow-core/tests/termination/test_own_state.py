# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_resilience.termination import own_state
from airflow_resilience.termination.own_state import Terminator, find_terminator


class Ti:
    """A task instance whose supervisor answers with these states, by the names that Airflow gives them."""

    dag_id, run_id, task_id = "dag", "run", "task"

    def __init__(self, states: dict[str, str | None], map_index: int | None = -1) -> None:
        self._states, self.map_index = states, map_index

    def get_task_states(self, **criteria: Any) -> dict[str, Any]:
        assert criteria["dag_id"] == "dag"
        assert criteria["task_ids"] == ["task"]
        assert criteria["run_ids"] == ["run"]
        return {"run": self._states} if self._states else {}


@pytest.mark.parametrize("state", ["running", "queued", "scheduled"])
def test_nobody_asked_for_the_end_of_a_task_that_is_to_run(state):
    assert find_terminator(Ti({"task": state})) is Terminator.INFRASTRUCTURE


@pytest.mark.parametrize("state", ["restarting", "failed", "success", "removed", "up_for_retry", None])
def test_a_user_has_ended_a_run_that_airflow_does_not_want_any_more(state):
    assert find_terminator(Ti({"task": state})) is Terminator.USER


def test_a_user_has_deleted_what_airflow_does_not_know():
    assert find_terminator(Ti({})) is Terminator.USER


@pytest.mark.parametrize("map_index", [0, 7])
def test_a_mapped_task_instance_asks_for_itself(map_index):
    states = {"task_0": "failed", "task_7": "failed"} | {f"task_{map_index}": "running"}
    assert find_terminator(Ti(states, map_index)) is Terminator.INFRASTRUCTURE


def test_a_task_instance_without_an_index_is_not_mapped():
    assert find_terminator(Ti({"task": "running"}, None)) is Terminator.INFRASTRUCTURE


def test_it_is_unknown_if_airflow_cannot_be_asked(caplog):
    class Disconnected(Ti):
        def get_task_states(self, **criteria: Any) -> dict[str, Any]:
            raise EOFError("Request socket closed before length")

    assert find_terminator(Disconnected({})) is Terminator.UNKNOWN
    assert "could not be asked" in caplog.text


def test_it_is_unknown_if_there_is_no_thread_for_the_question(monkeypatch, caplog):
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(own_state.Thread, "start", start)
    assert find_terminator(Ti({"task": "running"})) is Terminator.UNKNOWN
    assert "did not say" in caplog.text


def test_it_is_unknown_if_airflow_takes_too_long(monkeypatch):
    monkeypatch.setattr(own_state, "ANSWER_WITHIN", 0.01)
    answer = threading.Event()

    class Silent(Ti):
        def get_task_states(self, **criteria: Any) -> dict[str, Any]:
            answer.wait(60)
            return super().get_task_states(**criteria)

    try:
        assert find_terminator(Silent({"task": "running"})) is Terminator.UNKNOWN
    finally:
        answer.set()
