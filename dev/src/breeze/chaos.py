# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing chaos``: the search for an interleaving that breaks a promise of the executor."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from breeze.paths import PROVIDER, relative
from breeze.steps import console, run_tool

_TEST = PROVIDER / "tests" / "chaos" / "test_chaos.py"


def run_chaos(minutes: float, seed: int | None, limit: int | None, budget: int, *, outages: bool) -> int:
    """Drive the executor through random histories and print how many there were.

    :param minutes: for how long; 0: one round for each case.
    :param seed: of the first round, which then is the same again; None: any.
    :param limit: of relaunches, if only one of the cases that are tried is of interest.
    :param budget: for infrastructure retries of running tasks in that case.
    :param outages: whether a registry goes and comes in that case.
    :returns: pytest's exit code.
    """
    seed = random.randrange(2**32) if seed is None else seed
    test = f"{relative(_TEST)}::test_promises_hold{'' if limit is None else f'[{limit}-{budget}-{outages}]'}"
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        report = Path(folder) / "report.jsonl"
        env = {"CHAOS_MINUTES": str(minutes), "CHAOS_SEED": str(seed), "CHAOS_REPORT": str(report)}
        # Nothing of a broken promise but what led to it: no code of ours is at fault where it is noticed.
        exit_code = run_tool("pytest", "--show-capture=no", test, env=env)
        lines = report.read_text().splitlines() if report.exists() else []
    console.print(_table([json.loads(line) for line in lines]))
    return exit_code


def _table(tallies: list[dict[str, Any]]) -> Table:
    table = Table(title="breeze testing chaos", title_justify="left", show_footer=True)
    for column, total in (
        ("relaunches allowed", "together"),
        ("infrastructure budget", ""),
        ("outages", ""),
        ("histories", f"{sum(tally['histories'] for tally in tallies)}"),
        ("steps", f"{sum(tally['steps'] for tally in tallies)}"),
        ("minutes", f"{sum(tally['seconds'] for tally in tallies) / 60:.1f}"),
    ):
        table.add_column(column, total, justify="right")
    table.add_column("result")
    for tally in tallies:
        counts = [str(tally[name]) for name in ("limit", "budget", "outages", "histories", "steps")]
        table.add_row(*counts, f"{tally['seconds'] / 60:.1f}", _result(tally))
    return table


def _result(tally: dict[str, Any]) -> str:
    if tally["failing_seed"] is None:
        return "[green]every promise held[/]"
    case = f"--seed {tally['failing_seed']} --limit {tally['limit']} --budget {tally['budget']}"
    return f"[red]BROKEN:[/] {case}{' --outages' if tally['outages'] else ''}"
