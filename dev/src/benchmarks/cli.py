# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks, from the command line: the candidates by turns, and a table for each benchmark."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import drain, events, launch, loop, lost, memory, storm
from benchmarks.harness import OURS, Lab, open_lab
from testbed.terminal import make_console, run_in_terminal

BENCHMARKS = {
    module.__name__.removeprefix("benchmarks."): module
    for module in (launch, drain, events, lost, loop, memory, storm)
}
DISTRIBUTIONS = ("apache-airflow", "apache-airflow-providers-cncf-kubernetes", "aiohttp", "msgspec")

Sample = dict[str, Any]
"""One measurement: candidate, size, run, and its values by name or the error."""


def run(names: list[str], runs: int, binaries: Path | None) -> int:
    """
    Measure, and print what has come of it.

    :param names: of the benchmarks; empty: all of them
    :param runs: how often each candidate is measured
    :param binaries: the programs of a real control plane; None: the embedded API server takes its place
    :return: 0 if every measurement came to its end
    """
    console = make_console()
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        console.print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    machine = {
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "control plane": binaries.name if binaries else "the embedded API server",
        **{name: version(name) for name in DISTRIBUTIONS},
    }
    console.print("; ".join(f"{name}: {value}" for name, value in machine.items()))

    def measure() -> int:
        failed = False
        with open_lab(binaries) as lab:
            for name in names or BENCHMARKS:
                sizes = BENCHMARKS[name].SIZES
                samples = by_turns(lab, name, sizes, runs, console)
                console.print(result_table(name, sizes, samples))
                failed |= any("error" in sample for sample in samples)
        return int(failed)

    return run_in_terminal(measure)


def by_turns(lab: Lab, name: str, sizes: dict[str, int], runs: int, console: Console) -> list[Sample]:
    """
    Measure each candidate so many times; another one begins each time.

    What changes on the machine meets all of them. A measurement that fails is noted, and the others go on: an
    executor that does not cope is a result.
    """
    samples: list[Sample] = []
    candidates = list(sizes)
    for number in range(runs):
        first = number % len(candidates)
        for candidate in candidates[first:] + candidates[:first]:
            sample: Sample = {"candidate": candidate, "size": sizes[candidate], "run": number + 1}
            try:
                sample["values"] = BENCHMARKS[name].measure(lab, candidate, sizes[candidate])
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are measured
                sample["error"] = f"{type(error).__name__}: {error}"
            samples.append(sample)
            console.print(f"{name}: {sample}", style="dim", soft_wrap=True, markup=False)
    return samples


def result_table(name: str, sizes: dict[str, int], samples: list[Sample]) -> Table:
    """
    Return the numbers of one benchmark: the median of each candidate, from the lowest to the highest.

    The ratio is that of ours to the best official configuration.
    """
    table = Table(name, box=SIMPLE_HEAD, pad_edge=False)
    for candidate, size in sizes.items():
        table.add_column(f"{candidate}\n{size} pods", justify="right")
    table.add_column("ratio", justify="right")
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        for key, value in sample.get("values", {}).items():
            found[key][sample["candidate"]].append(value)
    *_, baseline = ("", *(candidate for candidate in sizes if not candidate.startswith(OURS)))
    for key, values in found.items():
        ours, theirs = values[OURS], values[baseline]
        ratio = f"{median(ours) / median(theirs):.3g}" if ours and theirs and median(theirs) else ""
        table.add_row(key, *(_spread(values[candidate]) for candidate in sizes), ratio)
    if failures := sum("error" in sample for sample in samples):
        table.caption = f"{failures} of {len(samples)} measurements failed"
    return table


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    middle, lowest, highest = map(_number, (median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({lowest} to {highest})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
