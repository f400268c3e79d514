# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The journal of the user's code, as tasks write it and the demo reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.code_journal import (
    FOLDER_VARIABLE,
    CodeRun,
    read_callbacks,
    read_code_runs,
    read_steps,
    record_callback,
    recorded,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_nothing_is_read_before_anything_ran(folder: Path) -> None:
    assert not read_code_runs(folder).once("a")
    assert read_code_runs(folder).times("a") == 0


def test_code_is_at_work_between_its_beginning_and_its_end(folder: Path) -> None:
    with recorded("a"):
        assert read_code_runs(folder).working("a")
        assert not read_code_runs(folder).once("a")
    assert not read_code_runs(folder).working("a")
    assert read_code_runs(folder).once("a")
    assert not read_code_runs(folder).once("b")


def test_code_that_was_interrupted_has_begun_only(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt), recorded("a"):
        raise KeyboardInterrupt
    runs = read_code_runs(folder)
    assert (runs.begun[CodeRun("a", "execute")], runs.ended[CodeRun("a", "execute")]) == (1, 0)


def test_a_second_run_is_counted(folder: Path) -> None:
    for _ in range(2):
        with recorded("a"):
            pass
    assert read_code_runs(folder).times("a") == 2
    assert not read_code_runs(folder).once("a")


def test_what_ran_beside_each_other_is_told_from_what_ran_one_after_the_other(folder: Path) -> None:
    assert read_steps(folder, "a") == []
    for _ in range(2):
        with recorded("a"):
            pass
    with recorded("b"), recorded("b"):
        pass
    assert read_steps(folder, "a") == ["begun", "ended", "begun", "ended"]
    assert read_steps(folder, "b") == ["begun", "begun", "ended", "ended"]


def test_the_parts_of_a_deferred_task_are_counted_apart(folder: Path) -> None:
    for part in ("execute", "resume"):
        with recorded("a", part):
            pass
    assert read_code_runs(folder).times("a") == 1
    assert read_code_runs(folder).once("a")


def test_callbacks_are_counted_apart_from_the_code(folder: Path) -> None:
    with pytest.raises(ValueError, match="own"), recorded("a"):
        raise ValueError("own")
    record_callback("a")
    assert read_callbacks(folder) == {"a": 1}
    assert read_code_runs(folder).times("a") == 1
    assert not read_code_runs(folder).once("a")
    assert read_steps(folder, "a") == ["begun"]


def test_a_line_that_is_still_being_written_is_left_for_later(folder: Path) -> None:
    with recorded("a"):
        pass
    with (folder / "executions.jsonl").open("a") as journal:
        journal.write('{"task_id": "a", "pa')
    assert read_code_runs(folder).once("a")
