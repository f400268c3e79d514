# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from cluster_lab.journal import JsonLines


def test_a_line_that_is_still_being_written_is_read_when_it_has_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = JsonLines(path, lambda item: item["n"])
    assert lines.read() == []
    path.write_text('{"n": 1}\n{"n"')
    assert lines.read() == [1]
    path.write_text('{"n": 1}\n{"n": 2}\n')
    assert lines.read() == [1, 2]
