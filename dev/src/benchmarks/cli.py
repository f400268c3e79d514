# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks, from the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.candidates import Candidate
from benchmarks.catalogue import CATALOGUE, SCALED, Benchmark
from benchmarks.lab import Lab, open_lab
from benchmarks.machine import describe_machine
from benchmarks.report import growth_table, result_table, write_json
from benchmarks.results import results
from benchmarks.runner import Sample, Say, measure_all
from testbed.terminal import make_console, run_in_terminal

CONSOLE_WIDTH = 140
"""Columns of an output that is no terminal."""

RUNS = 5
SCALES = (100, 1_000, 10_000)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is to be measured."""

    names: tuple[str, ...] = ()
    """Empty: every benchmark."""
    runs: int = RUNS
    """Of each candidate."""
    size: int | None = None
    """How many pods; None: what the benchmark says."""
    quick: bool = False
    """A quick look with few pods, which says nothing about a real API server."""
    scale: bool = False
    """How the costs grow with the number of pods."""

    def chosen(self) -> list[Benchmark]:
        """
        Return the benchmarks.

        :raises ValueError: if there is no such benchmark, or its growth is not looked at
        """
        known = SCALED if self.scale else tuple(CATALOGUE)
        if unknown := sorted(set(self.names) - set(known)):
            raise ValueError(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
        return [CATALOGUE[name] for name in known if not self.names or name in self.names]


def run(options: Options, binaries: Path | None, json_file: Path | None) -> int:
    """
    Measure, and print what has come of it.

    :param binaries: the programs of a real control plane; None: the embedded API server takes its place
    :param json_file: where every sample is written to
    :return: 0 if every measurement came to its end, whether or not the goals are met
    """
    return run_in_terminal(lambda: _run(options, binaries, json_file))


def _run(options: Options, binaries: Path | None, json_file: Path | None) -> int:
    console = make_console(CONSOLE_WIDTH)
    try:
        benchmarks = options.chosen()
    except ValueError as error:
        console.print(str(error))
        return 2
    machine = describe_machine(binaries)
    console.print("; ".join(f"{name}: {value}" for name, value in machine.items()))
    samples: list[Sample] = []
    try:
        with open_lab(binaries) as lab:
            for benchmark in benchmarks:
                samples += _measure(console, lab, benchmark, options)
    finally:
        if json_file:
            write_json(json_file, machine, asdict(options), samples)
    return int(any(sample.error for sample in samples))


def _measure(console: Console, lab: Lab, benchmark: Benchmark, options: Options) -> list[Sample]:
    samples: list[Sample] = []
    for size in SCALES if options.scale else (options.size,):
        sizes = _sizes(benchmark, size, options)
        found = list(measure_all(lab, benchmark, sizes, options.runs, _quietly(console)))
        console.print(result_table(benchmark, found, results(benchmark, found)))
        samples += found
    if options.scale:
        console.print(growth_table(benchmark, samples))
    return samples


def _sizes(benchmark: Benchmark, size: int | None, options: Options) -> dict[Candidate, int]:
    sizes = {it: benchmark.size_for(it, size, quick=options.quick) for it in benchmark.candidates}
    # To see growth, a candidate has to be measured at that very size.
    return {it: number for it, number in sizes.items() if not options.scale or number == size}


def _quietly(console: Console) -> Say:
    def say(line: str) -> None:
        console.print(line, style="dim", soft_wrap=True, markup=False)

    return say
