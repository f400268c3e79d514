# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.candidates import Candidate
from benchmarks.catalogue import ALL, CATALOGUE, SCALED, Benchmark
from benchmarks.cli import Options
from benchmarks.lab import Lab
from benchmarks.runner import measure_all, turns

UPSTREAM, TUNED, OURS = ALL
NO_LAB = cast("Lab", None)


def test_another_candidate_begins_each_run() -> None:
    assert list(turns(ALL, 4)) == [
        *((1, UPSTREAM), (1, TUNED), (1, OURS)),
        *((2, TUNED), (2, OURS), (2, UPSTREAM)),
        *((3, OURS), (3, UPSTREAM), (3, TUNED)),
        *((4, UPSTREAM), (4, TUNED), (4, OURS)),
    ]


def test_a_measurement_that_fails_is_noted_and_the_others_go_on() -> None:
    def measure(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
        if candidate is UPSTREAM:
            raise RuntimeError("it hangs")
        return {"size": size}

    benchmark = Benchmark(
        name="b", measure=measure, candidates=ALL, size=10, quick_size=5, sizes={UPSTREAM: 3}, rows=()
    )
    said: list[str] = []
    sizes = {it: benchmark.size_for(it, None, quick=False) for it in ALL}
    samples = list(measure_all(NO_LAB, benchmark, sizes, 1, said.append))
    assert [(it.candidate, it.size, it.values) for it in samples] == [
        (UPSTREAM, 3, {}),
        (TUNED, 10, {"size": 10}),
        (OURS, 10, {"size": 10}),
    ]
    assert "it hangs" in samples[0].error
    assert said[0].startswith("b 1/1, upstream, 3 pods: failed")
    assert said[1] == "b 1/1, upstream tuned, 10 pods: size 10"


@pytest.mark.parametrize(
    ("size", "quick", "expected"), [(None, False, 10), (None, True, 5), (7, True, 7), (50, False, 50)]
)
def test_size(size: int | None, quick: bool, expected: int) -> None:
    benchmark = Benchmark(
        name="b",
        measure=lambda lab, candidate, size: {},
        candidates=ALL,
        size=10,
        quick_size=5,
        sizes={UPSTREAM: 6},
        rows=(),
    )
    assert benchmark.size_for(OURS, size, quick=quick) == expected
    assert benchmark.size_for(UPSTREAM, size, quick=quick) == min(expected, 6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, list(CATALOGUE)),
        ({"names": ("lost", "launch")}, ["launch", "lost"]),
        ({"scale": True}, list(SCALED)),
        ({"scale": True, "names": ("events",)}, ["events"]),
    ],
)
def test_chosen_benchmarks(options: dict[str, Any], expected: list[str]) -> None:
    assert [benchmark.name for benchmark in Options(**options).chosen()] == expected


@pytest.mark.parametrize("options", [{"names": ("lunch",)}, {"names": ("lost",), "scale": True}])
def test_a_benchmark_that_there_is_not_is_refused_with_those_that_there_are(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"no benchmark {options['names'][0]}; there are launch, "):
        Options(**options).chosen()


def test_the_catalogue_is_the_table_of_the_issue() -> None:
    assert list(CATALOGUE) == ["launch", "drain", "events", "lost", "loop", "memory", "storm"]
    assert SCALED == ("launch", "events", "memory", "storm")
    for benchmark in CATALOGUE.values():
        assert any(row.goal for row in benchmark.rows)
        assert OURS in benchmark.candidates
