# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Who is measured when: the candidates take turns, so that what changes on the machine meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.candidates import Candidate
from benchmarks.catalogue import Benchmark
from benchmarks.lab import Lab

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One measurement."""

    benchmark: str
    candidate: Candidate
    size: int
    run: int
    """The first is 1."""
    values: Mapping[str, float]
    """Numbers by name; empty if it failed."""
    error: str = ""
    """Why it failed."""


def turns(candidates: Sequence[Candidate], runs: int) -> Iterator[tuple[int, Candidate]]:
    """Yield the number of each run with a candidate; another one begins each time."""
    for run in range(1, runs + 1):
        first = (run - 1) % len(candidates)
        for candidate in (*candidates[first:], *candidates[:first]):
            yield run, candidate


def measure_all(
    lab: Lab, benchmark: Benchmark, sizes: Mapping[Candidate, int], runs: int, say: Say
) -> Iterable[Sample]:
    """
    Measure each candidate so many times.

    One that fails is noted, and the others go on: an executor that does not cope is a result.

    :param sizes: which candidates, and on how many pods each
    :param say: told of each result
    """
    for run, candidate in turns(tuple(sizes), runs):
        size = sizes[candidate]
        sample = _measure(lab, benchmark, candidate, size, run)
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in sample.values.items())
        say(f"{benchmark.name} {run}/{runs}, {candidate}, {size} pods: {sample.error or numbers}")
        yield sample


def _measure(lab: Lab, benchmark: Benchmark, candidate: Candidate, size: int, run: int) -> Sample:
    values: Mapping[str, float] = {}
    error = ""
    try:
        values = benchmark.measure(lab, candidate, size)
    except (RuntimeError, AssertionError, ValueError, OSError) as failure:
        error = f"failed: {failure!r}"
    return Sample(
        benchmark=benchmark.name, candidate=candidate, size=size, run=run, values=values, error=error
    )
