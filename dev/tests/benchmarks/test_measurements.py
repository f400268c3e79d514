# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Measurements with a few pods, on the embedded API server.

They prepare the insides of the executors. A change of those must not go unnoticed until the next run of the
benchmarks: what most of them use is tried with each change, and all before a release.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from benchmarks import drain, events, launch, loop, lost, memory, storm
from benchmarks.harness import OURS, TUNED, UPSTREAM, WITH_BUDGET, Lab, open_lab

PODS = 20


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with open_lab(None) as opened:
        yield opened


@pytest.mark.parametrize(
    ("benchmark", "candidate", "number"),
    [
        (lost, WITH_BUDGET, "s until the last has another pod"),
        pytest.param(events, OURS, "results per s", marks=pytest.mark.long),
        pytest.param(lost, OURS, "s until the last is reported", marks=pytest.mark.long),
        pytest.param(lost, UPSTREAM, "s until the last is reported", marks=pytest.mark.long),
        pytest.param(loop, OURS, "p99 of sync(), ms", marks=pytest.mark.long),
        pytest.param(loop, UPSTREAM, "p99 of sync(), ms", marks=pytest.mark.long),
        pytest.param(launch, OURS, "pods per s", marks=pytest.mark.long),
        pytest.param(drain, OURS, "p50 until replaced, s", marks=pytest.mark.long),
        pytest.param(memory, TUNED, "sync() with all, ms", marks=pytest.mark.long),
        pytest.param(storm, OURS, "s from the return to the last", marks=pytest.mark.long),
    ],
)
def test_each_benchmark_has_its_numbers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, benchmark: ModuleType, candidate: str, number: str
) -> None:
    monkeypatch.setattr(memory, "SETTLING", 5.0)
    monkeypatch.setattr(storm, "WINDOW", 5.0)
    values = benchmark.measure(lab, candidate, PODS)
    assert min(value for key, value in values.items() if "growth" not in key) > 0
    assert number in values
