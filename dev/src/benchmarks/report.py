# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Tables for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from benchmarks.candidates import Candidate
from benchmarks.catalogue import Benchmark
from benchmarks.results import Result, growths
from benchmarks.runner import Sample
from benchmarks.values import Spread

_MET = {True: Text("met", style="green"), False: Text("NOT MET", style="bold red"), None: Text("")}


def result_table(benchmark: Benchmark, samples: Sequence[Sample], found: Iterable[Result]) -> Table:
    """Return the numbers of one benchmark: the median of each candidate, from the lowest to the highest."""
    sizes = {sample.candidate: sample.size for sample in samples}
    table = Table(title=benchmark.name, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for candidate in benchmark.candidates:
        table.add_column(f"{candidate}\n{sizes.get(candidate, 0)} pods", justify="right")
    for column in ("ratio", "goal", ""):
        table.add_column(column, justify="right")
    for result in found:
        numbers = [_numbers(result.spreads.get(it), result.row.scale) for it in benchmark.candidates]
        ratio = "" if result.ratio is None else f"{result.ratio:.3g}"
        goal = _goal(result)
        table.add_row(result.row.title, *numbers, ratio, goal, _MET[result.is_met])
    failures = [sample for sample in samples if sample.error]
    if failures:
        table.caption = f"{len(failures)} of {len(samples)} measurements failed"
    return table


def growth_table(benchmark: Benchmark, samples: Sequence[Sample]) -> Table:
    """Return how the costs of one benchmark grow with the number of pods."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{benchmark.name}: exponent of growth with the number of pods; 1 is linear")
    for candidate in benchmark.candidates:
        table.add_column(candidate, justify="right")
    found = growths(benchmark, samples)
    for name in benchmark.growth:
        exponents = [found.get((name, candidate)) for candidate in benchmark.candidates]
        table.add_row(name, *(f"{it.exponent:.2f}" if it else "" for it in exponents))
    return table


def write_json(
    path: Path, machine: Mapping[str, str], options: Mapping[str, Any], samples: Iterable[Sample]
) -> None:
    """Write everything that was measured."""
    content = {"machine": machine, "options": options, "samples": [asdict(sample) for sample in samples]}
    path.write_text(json.dumps(content, indent=2) + "\n")


def _numbers(spread: Spread | None, scale: float) -> str:
    if spread is None:
        return ""
    middle, lowest, highest = (
        _number(value * scale) for value in (spread.median, spread.lowest, spread.highest)
    )
    return middle if spread.runs == 1 else f"{middle} ({lowest} to {highest})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _goal(result: Result) -> str:
    goal = result.row.goal
    if goal is None:
        return ""
    if goal.against:
        return f"{goal} {Candidate(goal.against)}"
    return f"{goal.bound} {_number(goal.limit * result.row.scale)}"
