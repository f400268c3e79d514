# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``./breeze testing chaos`` searches for as long as it is told to; ``testing release`` makes one round."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

CASES = [(0, 0, False), (1, 0, False), (3, 0, False), (1, 2, False), (1, 0, True)]
"""Limits of relaunches, each with an infrastructure budget, and whether a registry goes and comes."""

MINUTES = float(os.environ.get("CHAOS_MINUTES", "0"))
"""How long to search, for all cases together; 0: one round for each."""

SEED = int(os.environ.get("CHAOS_SEED", "0"))
"""Of the first round; each further one has the next number. The default is the same each time, so that a
failure in CI is about the change and not about luck."""

HISTORIES = 60
EXECUTION_HISTORIES = 40
"""With an infrastructure budget. They take longer: more happens in each of them."""

ROUND = settings(
    max_examples=HISTORIES,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=False,
)


@dataclass
class Tally:
    """What was tried in one case."""

    limit: int
    budget: int
    outages: bool
    histories: int = 0
    steps: int = 0
    seconds: float = 0.0
    failing_seed: int | None = None


@pytest.mark.long
@pytest.mark.parametrize(("limit", "budget", "outages"), CASES)
@pytest.mark.timeout(900 + 60 * MINUTES)
def test_promises_hold(machine, limit, budget, outages, capsys):
    tally, began = Tally(limit, budget, outages), time.monotonic()
    try:
        search(machine(limit, budget, outages=outages), tally, began + 60 * MINUTES / len(CASES))
    finally:
        tally.seconds = time.monotonic() - began
        with capsys.disabled():
            sys.stdout.write(f"\n{tally}\n")


def search(machine, tally, end):
    histories = settings(ROUND, max_examples=EXECUTION_HISTORIES) if tally.budget else ROUND
    for number in count(SEED):
        try:
            run_state_machine_as_test(seed(number)(counted(machine, tally)), settings=histories)
        except BaseException as error:
            tally.failing_seed = number
            case = f"--case {tally.limit}-{tally.budget}-{tally.outages}"
            error.add_note(f"The same again: ./breeze testing chaos --seed {number} {case}")
            raise
        if time.monotonic() >= end:
            return


def counted(machine, tally):
    class Chaos(machine):
        def __init__(self):
            super().__init__()
            tally.histories += 1

        def check_invariants(self, *args, **kwargs):
            # After each step. An invariant would do as well, but each check of one is printed as a step.
            tally.steps += 1
            super().check_invariants(*args, **kwargs)

    return Chaos
