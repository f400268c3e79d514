# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the samples of a benchmark say: each number, the ratio, and whether the goal is met. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.candidates import Candidate
from benchmarks.catalogue import Benchmark, Row
from benchmarks.runner import Sample
from benchmarks.values import Growth, Spread, fit_growth


@dataclass(frozen=True)
class Result:
    """A number of a benchmark, by candidate."""

    row: Row
    spreads: Mapping[Candidate, Spread]
    """Without candidates that have no such number."""

    @property
    def baseline(self) -> Candidate | None:
        """Whose number ours is divided by: the goal's, else that of the best official configuration."""
        if self.row.goal and self.row.goal.against:
            return self.row.goal.against
        others = (Candidate.TUNED, Candidate.UPSTREAM)
        return next((candidate for candidate in others if candidate in self.spreads), None)

    @property
    def ratio(self) -> float | None:
        """The median of ours divided by that of the baseline; None if one of them is missing, or 0."""
        ours = self.spreads.get(Candidate.OURS)
        theirs = self.spreads.get(self.baseline) if self.baseline else None
        return ours.median / theirs.median if ours and theirs and theirs.median else None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None if there is none, or nothing to tell it by."""
        ours = self.spreads.get(Candidate.OURS)
        if self.row.goal is None or ours is None:
            return None
        value = self.ratio if self.row.goal.against else ours.median
        return None if value is None else self.row.goal.is_met(value)


def results(benchmark: Benchmark, samples: Iterable[Sample]) -> list[Result]:
    """Return the rows of the table for the samples of a benchmark."""
    found: dict[str, dict[Candidate, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        for key, value in sample.values.items():
            found[key][sample.candidate].append(value)
    return [
        Result(row, {candidate: Spread.of(values) for candidate, values in found[row.key].items()})
        for row in benchmark.rows
        if row.key in found
    ]


def growths(benchmark: Benchmark, samples: Iterable[Sample]) -> dict[tuple[str, Candidate], Growth]:
    """
    Return how each cost of a benchmark grows with the number of pods, by its name and candidate.

    Costs that were not positive, or are known of one size only, are left out.
    """
    costs: dict[tuple[str, Candidate], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        for name in benchmark.growth:
            if name in sample.values:
                costs[name, sample.candidate][sample.size].append(sample.values[name])
    medians = {
        key: {size: Spread.of(values).median for size, values in by_size.items()}
        for key, by_size in costs.items()
    }
    return {
        key: fit_growth(by_size)
        for key, by_size in medians.items()
        if len(by_size) > 1 and min(by_size.values()) > 0
    }
