# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from benchmarks.candidates import Candidate
from benchmarks.catalogue import ALL, Benchmark, Bound, Goal, Row
from benchmarks.report import growth_table, result_table, write_json
from benchmarks.results import Result, growths, results
from benchmarks.runner import Sample
from benchmarks.values import Spread

UPSTREAM, TUNED, OURS = ALL


def spread(median: float) -> Spread:
    return Spread(median, median, median, 1)


def sample(candidate: Candidate, size: int = 10, error: str = "", **values: float) -> Sample:
    return Sample(benchmark="b", candidate=candidate, size=size, run=1, values=values, error=error)


def benchmark(*rows: Row, growth: tuple[str, ...] = ()) -> Benchmark:
    return Benchmark(
        name="b",
        measure=lambda lab, candidate, size: {},
        candidates=ALL,
        size=10,
        quick_size=5,
        sizes={UPSTREAM: 3},
        rows=rows,
        growth=growth,
    )


def text(part: RenderableType) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("bound", "limit", "value", "met"),
    [
        (Bound.AT_LEAST, 2, 2, True),
        (Bound.AT_LEAST, 2, 1.99, False),
        (Bound.AT_MOST, 0.05, 0.05, True),
        (Bound.AT_MOST, 0.05, 0.06, False),
    ],
)
def test_a_goal_includes_its_limit(bound: Bound, limit: float, value: float, met: bool) -> None:
    assert Goal(bound, limit).is_met(value) is met


@pytest.mark.parametrize(
    ("goal", "numbers", "ratio", "met"),
    [
        (None, {TUNED: 4, OURS: 8}, 2, None),
        (None, {UPSTREAM: 2, OURS: 8}, 4, None),
        (None, {UPSTREAM: 2, TUNED: 4, OURS: 8}, 2, None),
        (Goal(Bound.AT_LEAST, 3, UPSTREAM), {UPSTREAM: 2, TUNED: 4, OURS: 8}, 4, True),
        (Goal(Bound.AT_LEAST, 3, TUNED), {UPSTREAM: 2, TUNED: 4, OURS: 8}, 2, False),
        (Goal(Bound.AT_MOST, 3, TUNED), {OURS: 8}, None, None),
        (Goal(Bound.AT_MOST, 3, TUNED), {TUNED: 0, OURS: 8}, None, None),
        (Goal(Bound.AT_MOST, 8), {OURS: 8}, None, True),
        (Goal(Bound.AT_MOST, 8), {TUNED: 8}, None, None),
    ],
)
def test_ratio_and_goal(
    goal: Goal | None, numbers: Mapping[Candidate, float], ratio: float | None, met: bool | None
) -> None:
    result = Result(Row("key", "title", goal=goal), {it: spread(value) for it, value in numbers.items()})
    assert (result.ratio, result.is_met) == (ratio, met)


def test_rows_are_those_of_which_there_are_samples() -> None:
    found = results(
        benchmark(Row("a", "A"), Row("b", "B"), Row("c", "C")),
        [sample(OURS, a=1), sample(OURS, a=3), sample(TUNED, a=2, c=5), sample(UPSTREAM, error="failed")],
    )
    assert [(result.row.key, dict(result.spreads)) for result in found] == [
        ("a", {OURS: Spread(2, 1, 3, 2), TUNED: spread(2)}),
        ("c", {TUNED: spread(5)}),
    ]


def test_growth_is_of_medians_by_size() -> None:
    samples = [sample(OURS, size, cost=size * 3.0) for size in (10, 100)]
    samples += [sample(TUNED, 10, cost=1), sample(UPSTREAM, 10, cost=0), sample(UPSTREAM, 100, cost=1)]
    found = growths(benchmark(growth=("cost",)), samples)
    assert {key: growth.exponent for key, growth in found.items()} == {("cost", OURS): pytest.approx(1)}


def test_the_table_shows_medians_spreads_and_goals() -> None:
    it = benchmark(Row("a", "time, ms", 1000, Goal(Bound.AT_MOST, 0.5, TUNED)), Row("b", "size"))
    samples = [
        sample(TUNED, a=0.004, b=1234.5),
        sample(OURS, a=0.001),
        sample(OURS, a=0.003),
        sample(UPSTREAM, 3, error="failed: it hangs"),
    ]
    table = text(result_table(it, samples, results(it, samples)))
    assert "2 (1 to 3)" in table
    assert "at most 0.5 x upstream tuned" in table
    assert "met" in table
    assert "NOT MET" not in table
    assert "1,234" in table
    assert "1 of 4 measurements failed" in table


@pytest.mark.parametrize(("limit", "shown"), [(0.0005, "NOT MET"), (0.001, "met")])
def test_an_absolute_goal_is_shown_in_the_unit_of_the_row(limit: float, shown: str) -> None:
    it = benchmark(Row("a", "time, ms", 1000, Goal(Bound.AT_MOST, limit)))
    samples = [sample(OURS, a=0.001)]
    _, end = text(result_table(it, samples, results(it, samples))).split("at most")
    assert end.split() == [f"{limit * 1000:.3g}", *shown.split()]


def test_the_table_of_growth_shows_exponents() -> None:
    it = benchmark(growth=("cost",))
    table = text(growth_table(it, [sample(OURS, size, cost=size**0.5) for size in (100, 10_000)]))
    assert table.splitlines()[-2].split() == ["cost", "0.50"]


def test_json_has_everything(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_json(path, {"processors": "2"}, {"runs": 1}, [sample(OURS, a=1.5), sample(TUNED, error="failed")])
    assert json.loads(path.read_text()) == {
        "machine": {"processors": "2"},
        "options": {"runs": 1},
        "samples": [
            {"benchmark": "b", "candidate": "ours", "size": 10, "run": 1, "values": {"a": 1.5}, "error": ""},
            {
                "benchmark": "b",
                "candidate": "upstream tuned",
                "size": 10,
                "run": 1,
                "values": {},
                "error": "failed",
            },
        ],
    }
