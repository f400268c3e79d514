# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is measured, on how many pods, and what is to come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.candidates import Candidate
from benchmarks.lab import Lab
from benchmarks.measure.events import measure_events, measure_loop, measure_lost
from benchmarks.measure.launch import measure_drain, measure_launch
from benchmarks.measure.memory import measure_memory
from benchmarks.measure.storm import measure_storm

Measure = Callable[[Lab, Candidate, int], dict[str, float]]
"""Measures a candidate once, on so many pods, and returns numbers by name."""

BOTH = (Candidate.UPSTREAM, Candidate.OURS)
TUNED = (Candidate.TUNED, Candidate.OURS)
ALL = (Candidate.UPSTREAM, Candidate.TUNED, Candidate.OURS)


class Bound(StrEnum):
    """Which way a goal lies."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Goal:
    """What a number of ours is to be."""

    bound: Bound
    limit: float
    against: Candidate | None = None
    """Whose number ours is divided by; None: the limit is for the number itself."""

    def is_met(self, value: float) -> bool:
        """Whether a number, or a ratio, is good enough."""
        return value >= self.limit if self.bound is Bound.AT_LEAST else value <= self.limit

    def __str__(self) -> str:
        number = f"{self.limit:.3g}"
        return f"{self.bound} {number} x" if self.against else f"{self.bound} {number}"


@dataclass(frozen=True)
class Row:
    """A number that the table shows."""

    key: str
    title: str
    """With the unit."""
    scale: float = 1.0
    """By which the number is multiplied for the table."""
    goal: Goal | None = None


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One line of the issue's table."""

    name: str
    measure: Measure
    candidates: tuple[Candidate, ...]
    size: int
    quick_size: int
    sizes: Mapping[Candidate, int]
    """Where a candidate would take too long."""
    rows: tuple[Row, ...]
    growth: tuple[str, ...] = ()
    """The numbers whose growth with the size is looked at."""

    def size_for(self, candidate: Candidate, size: int | None, *, quick: bool) -> int:
        """Return on how many pods to measure a candidate; ``size`` is what the user wants, if anything."""
        wanted = size or (self.quick_size if quick else self.size)
        return min(wanted, self.sizes.get(candidate, wanted))


def _at_least(limit: float, against: Candidate | None = None) -> Goal:
    return Goal(Bound.AT_LEAST, limit, against)


def _at_most(limit: float, against: Candidate | None = None) -> Goal:
    return Goal(Bound.AT_MOST, limit, against)


COSTS = (Row("requests_per_task", "requests per task"), Row("kilobytes_per_task", "kB per task"))
_SLOW = {Candidate.UPSTREAM: 60}

_CATALOGUE = (
    Benchmark(
        name="launch",
        measure=measure_launch,
        candidates=ALL,
        size=300,
        quick_size=30,
        sizes=_SLOW,
        rows=(
            Row("rate", "pods per s", goal=_at_least(2, Candidate.TUNED)),
            Row("seconds", "s until the last exists"),
            Row("longest_turn", "longest sync(), ms", 1000),
            *COSTS,
        ),
        growth=("seconds",),
    ),
    Benchmark(
        name="drain",
        measure=measure_drain,
        candidates=ALL,
        size=300,
        quick_size=30,
        sizes=_SLOW,
        rows=(
            Row("p50", "p50 until replaced, s", goal=_at_most(1 / 5, Candidate.TUNED)),
            Row("max", "longest, s", goal=_at_most(1 / 4, Candidate.TUNED)),
            *COSTS,
        ),
    ),
    Benchmark(
        name="events",
        measure=measure_events,
        candidates=BOTH,
        size=10_000,
        quick_size=300,
        sizes={},
        rows=(
            Row("rate", "results per s", goal=_at_least(10, Candidate.UPSTREAM)),
            Row("raw_rate", "pods per s, read and decoded"),
            Row("share_of_raw", "share of that, %", 100, _at_least(0.5)),
            Row("cpu_per_event", "CPU ms per event", 1000),
            Row("longest_turn", "longest sync(), ms", 1000),
            Row("bytes_per_pod", "bytes per pod"),
            *COSTS,
        ),
        growth=("seconds", "cpu"),
    ),
    Benchmark(
        name="lost",
        measure=measure_lost,
        candidates=(*BOTH, Candidate.WITH_BUDGET),
        size=1000,
        quick_size=100,
        sizes={},
        rows=(
            Row("longest_turn", "longest sync(), ms", 1000, _at_most(1, Candidate.UPSTREAM)),
            Row("reported", "s until the last is reported"),
            Row("replaced", "s until the last has another pod"),
            *COSTS,
        ),
    ),
    Benchmark(
        name="loop",
        measure=measure_loop,
        candidates=BOTH,
        size=2000,
        quick_size=200,
        sizes={},
        rows=(
            Row("longest", "longest sync(), ms", 1000, _at_most(1 / 20, Candidate.UPSTREAM)),
            Row("p99", "p99 of sync(), ms", 1000),
            *COSTS,
        ),
    ),
    Benchmark(
        name="memory",
        measure=measure_memory,
        candidates=TUNED,
        size=5000,
        quick_size=100,
        sizes={},
        rows=(
            Row("empty", "empty, MB", goal=_at_most(0.55, Candidate.TUNED)),
            Row("tracked", "all pods tracked, MB", goal=_at_most(0.55, Candidate.TUNED)),
            Row("after_burst", "after the burst, MB", goal=_at_most(0.55, Candidate.TUNED)),
            Row("bytes_per_pod", "growth per pod, bytes", goal=_at_most(2048)),
            Row("idle_turn", "sync() with no pods, ms", 1000),
            Row("tracked_turn", "sync() with all, ms", 1000),
        ),
        growth=("growth", "tracked_turn"),
    ),
    Benchmark(
        name="storm",
        measure=measure_storm,
        candidates=(Candidate.OURS,),
        size=1000,
        quick_size=30,
        sizes={},
        rows=(
            Row("pending_turn", "sync() with all pending, ms", 1000),
            Row("held_turn", "sync() with all held, ms", 1000),
            Row("pending_memory", "all pending, MB"),
            Row("held_memory", "all held, MB"),
            Row("memory_ratio", "memory, held by pending", goal=_at_most(1.2)),
            Row("first", "s from the return to the last of 300"),
            Row("seconds", "s from the return to the last"),
        ),
        growth=("held_turn",),
    ),
)

CATALOGUE = {benchmark.name: benchmark for benchmark in _CATALOGUE}
SCALED = tuple(benchmark.name for benchmark in _CATALOGUE if benchmark.growth)
