# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The test suites: where they are, how they are divided, and how they are run."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from breeze.paths import CORE, DEV, PROVIDER, ROOT
from breeze.steps import run_tool

SUITES = {
    "core-tests": CORE / "tests",
    "providers-tests": PROVIDER / "tests",
    "dev-tests": DEV / "tests",
    "system-tests": ROOT / "tests",
}
SYSTEM = SUITES["system-tests"]
WITHOUT_DEPLOYMENT = [folder for folder in SUITES.values() if folder != SYSTEM]
UNIT_TESTS = (SUITES["core-tests"], SUITES["providers-tests"] / "unit")
"""What needs neither a cluster nor another version of anything, and does not search at random."""

SHORT = "not long"
"""Parts of suites are expressions about the tests' markers. This one is what ``testing all`` runs."""

IN_PARALLEL = ("--numprocesses=2", "--dist=worksteal")
"""
Options of pytest. Each process has a PostgreSQL of its own, and an API server for the part of a module that
is in it.
"""

_MODULES_IN_PARALLEL = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")
"""Those of system tests, which wait more than they compute. The tests of a module share its deployment."""


def run_tests(
    *tests: Path,
    part: str,
    keep_going: bool = False,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> int:
    """Run tests in two processes, up to the first failure, and return pytest's exit code.

    :param tests: files and folders; those of deployments go alone.
    :param part: an expression about the tests' markers.
    :param keep_going: go on after a failure.
    :param options: further ones for pytest.
    :param env: variables to set besides those of this process.
    """
    words = [*(_MODULES_IN_PARALLEL if SYSTEM in tests else IN_PARALLEL), "-m", part, *options]
    return run_tool("pytest", *tests, *words, *(() if keep_going else ("--exitfirst",)), env=env)


def run_suite(context: typer.Context) -> int:
    """Run the suite of the command's name, or what pytest makes of other words, maybe a path in the suite."""
    folder, extra = SUITES[context.info_name or ""], context.args
    if not extra:
        return run_tests(folder, part="")
    named = any((ROOT / word).is_relative_to(folder) for word in extra)
    return run_tool("pytest", *(() if named else (folder,)), *extra)


def run_chaos(
    minutes: Annotated[float, Option(min=0, help="For how long; 0: one round for each case.")] = 0,
    seed: Annotated[int | None, Option(help="Of the first round: one that has failed fails again.")] = None,
    case: Annotated[str, Option(help="Only this one, as a failure names it; by default all.")] = "",
) -> int:
    """Search for an interleaving of events that breaks a promise of the executor."""
    test = f"{SUITES['providers-tests']}/chaos/test_chaos.py::test_promises_hold{case and f'[{case}]'}"
    number = random.randrange(2**32) if seed is None else seed
    env = {"CHAOS_MINUTES": str(minutes), "CHAOS_SEED": str(number)}
    # Nothing of a broken promise but what led to it: no code of ours is at fault where it is noticed.
    return run_tool("pytest", "--show-capture=no", test, env=env)
