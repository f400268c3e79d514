# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Measurements with a few pods, on the embedded API server.

They prepare the insides of the executors. A change of those must not go unnoticed until the next run of the
benchmarks: what most of them use is tried with each change, and all before a release.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import memory, storm
from benchmarks.cli import by_turns, result_table
from benchmarks.harness import OURS, TUNED, UPSTREAM, WITH_BUDGET, Lab, open_lab
from testbed.terminal import make_console

PODS = 20


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with open_lab(None) as opened:
        yield opened


@pytest.mark.parametrize(
    ("benchmark", "candidate", "number"),
    [
        ("lost", WITH_BUDGET, "s until the last has another pod"),
        pytest.param("events", OURS, "results per s", marks=pytest.mark.long),
        pytest.param("lost", OURS, "s until the last is reported", marks=pytest.mark.long),
        pytest.param("lost", UPSTREAM, "s until the last is reported", marks=pytest.mark.long),
        pytest.param("loop", OURS, "p99 of sync(), ms", marks=pytest.mark.long),
        pytest.param("loop", UPSTREAM, "p99 of sync(), ms", marks=pytest.mark.long),
        pytest.param("launch", OURS, "pods per s", marks=pytest.mark.long),
        pytest.param("drain", OURS, "p50 until replaced, s", marks=pytest.mark.long),
        pytest.param("memory", TUNED, "sync() with all, ms", marks=pytest.mark.long),
        pytest.param("storm", OURS, "s from the return to the last", marks=pytest.mark.long),
    ],
)
def test_each_benchmark_has_its_numbers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, benchmark: str, candidate: str, number: str
) -> None:
    monkeypatch.setattr(memory, "SETTLING", 5.0)
    monkeypatch.setattr(storm, "WINDOW", 5.0)
    (sample,) = samples = by_turns(lab, benchmark, {candidate: PODS}, 1, make_console())
    assert min(value for key, value in sample["values"].items() if "growth" not in key) > 0
    assert number in sample["values"]
    assert result_table(benchmark, {candidate: PODS}, samples).row_count == len(sample["values"])
