# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cluster_lab.journal import Journal, JournalEntry, JournalEvent, open_journal

ENTRY = JournalEntry(
    time=datetime(2026, 11, 20, 12, 0, 0, 5, tzinfo=UTC),
    event=JournalEvent.EXITED,
    namespace="default",
    pod="load-1",
    uid="u1",
    node="lab-node-1",
    dag_id="etl",
    task_id="load",
    run_id="r1",
    map_index=-1,
    try_number=1,
    phase="initial",
    launch=1,
    fault="kill-running",
    exit_code=137,
)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write(ENTRY)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"time": "2026-')
    assert open_journal(path).read() == [ENTRY]
