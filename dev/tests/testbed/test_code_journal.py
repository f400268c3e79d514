# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from testbed.code_journal import CALLBACK, FOLDER_VARIABLE, CodeJournal, record_callback, recorded


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_what_is_written_is_read_as_it_comes(folder: Path) -> None:
    journal = CodeJournal(folder)
    assert journal.counts() == Counter()
    with pytest.raises(ValueError, match="own"), recorded("a"):
        raise ValueError("own")
    assert journal.steps("a") == ["begun"]
    record_callback("a")
    with recorded("b"), recorded("b"):
        pass
    assert journal.counts() == Counter(
        {("a", "begun"): 1, ("a", CALLBACK): 1, ("b", "begun"): 2, ("b", "ended"): 2}
    )
    assert [journal.steps(task) for task in "ab"] == [["begun"], ["begun", "begun", "ended", "ended"]]


def test_a_line_that_is_still_being_written_is_left_for_later(folder: Path) -> None:
    journal = CodeJournal(folder)
    with recorded("a"):
        pass
    whole = '{"task_id": "a", "step": "begun"}\n'
    for half, found in ((whole[:9], ["begun", "ended"]), (whole[9:], ["begun", "ended", "begun"])):
        with (folder / "executions.jsonl").open("a") as file:
            file.write(half)
        assert journal.steps("a") == found
