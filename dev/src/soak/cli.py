# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The soak run, from the command line."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console

from soak.disturbances import plan_disturbances
from soak.fault_injector import FaultInjector, possible_on
from soak.growth import Growth, Span, compare
from soak.measurement import ALLOWANCES, allowances_of
from soak.report import details, growth_table, outcome_table, summary
from soak.run import Soak
from soak.settings import configuration, write_fault_plan
from testbed.terminal import make_console, run_in_terminal
from testbed.testbed import TestbedSettings, open_testbed

WARM_UP = 300.0
"""Seconds, or a sixth of a run that is short: until the scheduler has done everything once."""

DAGS = Path(__file__).parent / "dags"


def run(minutes: float, seed: int | None, control_plane: Path | None) -> int:
    """
    Run tasks for so many minutes, wait for their end and print what has become of them.

    :param seed: decides what goes wrong; None: another one each time, which is printed
    :param control_plane: the programs of a real one; None: the embedded API server takes its place
    :return: 0 if every task did what it should and nothing has grown
    """
    return run_in_terminal(lambda: _run(minutes, seed, control_plane))


def _run(minutes: float, seed: int | None, control_plane: Path | None) -> int:
    console = make_console()
    seed = random.randrange(1_000_000) if seed is None else seed
    home = Path(tempfile.mkdtemp(prefix="airflow-soak-"))
    kind = "a real control plane" if control_plane else "the embedded API server"
    console.print(f"{minutes:g} minutes on {kind}, seed {seed}; logs are in {home}", soft_wrap=True)
    exit_code = _soak(console, minutes * 60, seed, _testbed_settings(home, seed, control_plane))
    if exit_code == 0:
        shutil.rmtree(home, ignore_errors=True)
    else:
        console.print(f"The same again: --minutes {minutes:g} --seed {seed}. Logs: {home}", soft_wrap=True)
    return exit_code


def _testbed_settings(home: Path, seed: int, control_plane: Path | None) -> TestbedSettings:
    plan = home / "faults.yaml"
    write_fault_plan(plan, seed)
    return TestbedSettings(
        home=home, dags=DAGS, faults=plan, env=configuration(home), control_plane=control_plane
    )


def _soak(console: Console, seconds: float, seed: int, settings: TestbedSettings) -> int:
    with open_testbed(settings) as testbed:
        soak = Soak(testbed, console, seconds)
        soak.prepare()
        begin = time.time()
        with FaultInjector(testbed, plan_disturbances(seed, seconds, possible_on(testbed))) as fault_injector:
            soak.work()
        span = Span(begin + min(WARM_UP, seconds / 6), time.time())
        soak.come_to_rest()
        outcome, growth = soak.outcome(fault_injector.cleared), _growth(soak, span)
    disturbances = Counter({str(kind): number for kind, number in fault_injector.done.items()})
    console.print(outcome_table(outcome), growth_table(growth), details(outcome, disturbances))
    console.print(summary(outcome, growth))
    return int(not outcome.good or not all(row.none for row in growth))


def _growth(soak: Soak, span: Span) -> list[Growth]:
    holdings = soak.holdings()
    return [
        *compare(span, soak.samples, ALLOWANCES),
        *compare(span, holdings, allowances_of(holdings), comes_to_rest=True),
    ]
