# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cli
from benchmarks.harness import OURS, TUNED, UPSTREAM


def measure(_lab: Any, candidate: str, size: int) -> dict[str, float]:
    if candidate == UPSTREAM:
        raise RuntimeError("it hangs")
    return {"pods": size * 1000, "time, s": 1.0 if candidate == OURS else 4.0}


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def no_lab(_binaries: Path | None) -> Iterator[None]:
        yield None

    benchmark = SimpleNamespace(measure=measure, SIZES={UPSTREAM: 20, TUNED: 50, OURS: 50})
    monkeypatch.setattr(cli, "open_lab", no_lab)
    monkeypatch.setattr(cli, "BENCHMARKS", {"b": benchmark})


def test_candidates_take_turns_and_one_that_fails_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert cli.run([], runs=2, size=None, quick=True, binaries=None, json_file=file) == 1
    samples = json.loads(file.read_text())["samples"]["b"]
    assert [(sample["run"], sample["candidate"], sample["size"]) for sample in samples] == [
        *((1, UPSTREAM, 2), (1, TUNED, 5), (1, OURS, 5)),
        *((2, TUNED, 5), (2, OURS, 5), (2, UPSTREAM, 2)),
    ]
    assert samples[0]["error"] == "RuntimeError: it hangs"
    assert samples[2]["values"] == {"pods": 5000, "time, s": 1.0}


def test_the_table_has_medians_spreads_and_the_ratio_to_the_best_official_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = [(TUNED, 4.0), (OURS, 0.5), (OURS, 1.0), (OURS, 1234.0)]
    samples = [{"candidate": candidate, "values": {"time, s": value}} for candidate, value in values]
    table = cli.result_table("b", {UPSTREAM: 2, TUNED: 5, OURS: 5}, [*samples, {"error": "it hangs"}])
    cli.make_console().print(table)
    shown = capsys.readouterr().out
    assert "time, s 4 1 (0.5 to 1,234) 0.25" in " ".join(shown.split())
    assert "1 of 5 measurements failed" in shown
