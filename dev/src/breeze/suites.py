# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The test suites: where they are, and how they are divided."""

from __future__ import annotations

import json
import tomllib
from enum import StrEnum
from typing import TYPE_CHECKING

from breeze.paths import BUILD, CORE, DEV, PROVIDER, ROOT, relative
from breeze.steps import console, run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MINIMUM_COVERAGE = 95
"""Percent of the branches of each module."""

EACH_VERSION = "each_version"
"""The marker of the system tests that run with other versions of Airflow, too."""

_NEWEST_VERSION = "newest_version"
"""The marker of those that run with the newest one in the same go: what our executor meets there."""

_FAILURES = 3
"""After how many failures tests end: the next ones would say the same again."""


class Part(StrEnum):
    """A part of a suite, as an expression about the tests' markers."""

    SHORT = "not long"
    LONG = f"long and not {_NEWEST_VERSION}"
    #: What :mod:`breeze.compat` runs on the newest version.
    COMPAT = f"long and {_NEWEST_VERSION}"
    #: What a real control plane is to show: the short tests and the long ones.
    BUT_COMPAT = f"not {_NEWEST_VERSION}"


SUITES = {
    "core-tests": CORE / "tests",
    "providers-tests": PROVIDER / "tests",
    "dev-tests": DEV / "tests",
    "system-tests": ROOT / "tests",
}

SYSTEM = SUITES["system-tests"]

IN_PARALLEL = ("--numprocesses=2", "--dist=worksteal")
"""
Options of pytest. Each process has a PostgreSQL of its own, and an API server for the part of a module that
is in it.
"""

_MODULES_IN_PARALLEL = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")
"""Those of system tests, which wait more than they compute. The tests of a module share its deployment."""

_UNIT_TESTS = (SUITES["core-tests"], SUITES["providers-tests"] / "unit")
"""What needs neither a cluster nor another version of anything, and does not search at random."""


def run_suites(
    *names: str,
    part: Part | None = None,
    extra: Sequence[str] = (),
    keep_going: bool = False,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run suites in one go.

    :param names: keys of :data:`SUITES`; system tests go alone.
    :param part: run only this part; None: all tests.
    :param extra: what pytest is told in place of the suite's options; a path in it replaces all of it.
    :param keep_going: go on after as many failures as otherwise end it.
    :param env: variables to set besides those of this process.
    :returns: pytest's exit code.
    """
    tests = [SUITES[name] for name in names]
    if any((ROOT / word).is_relative_to(folder) for word in extra for folder in tests):
        return run_tool("pytest", *extra, env=env)
    words = [*map(relative, tests), *extra]
    if not extra:
        is_system = SYSTEM in tests
        words += _MODULES_IN_PARALLEL if is_system else IN_PARALLEL
        words += [] if keep_going else [f"--maxfail={1 if is_system else _FAILURES}"]
        words += ["-m", part.value] if part else []
    return run_tool("pytest", *words, env=env)


def run_unit_tests(*options: str, env: Mapping[str, str] | None = None) -> int:
    """Run the unit tests of both distributions, and return pytest's exit code.

    :param options: further ones for pytest.
    :param env: variables to set besides those of this process.
    """
    words = (*map(relative, _UNIT_TESTS), *IN_PARALLEL, f"--maxfail={_FAILURES}", "-m", Part.SHORT.value)
    return run_tool("pytest", *words, *options, env=env)


def check_coverage() -> int:
    """Run the unit tests, and fail too if they cover a module less that ``[tool.coverage]`` lists.

    :returns: pytest's exit code, or 1 if a module has less than :data:`MINIMUM_COVERAGE`.
    """
    report = BUILD / "coverage.json"
    env = {"COVERAGE_FILE": str(BUILD / "coverage.db")}
    if exit_code := run_unit_tests("--cov", f"--cov-report=json:{report}", env=env):
        return exit_code
    measured = json.loads(report.read_text())["files"]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]
    wanted = [relative(path) for pattern in settings["run"]["include"] for path in ROOT.glob(pattern)]
    found = {name: measured[name]["summary"]["percent_covered"] if name in measured else 0 for name in wanted}
    short = {name: percent for name, percent in found.items() if percent < MINIMUM_COVERAGE}
    console.print(f"{len(found)} modules, {len(short)} below {MINIMUM_COVERAGE} %: {short}")
    return int(bool(short))
