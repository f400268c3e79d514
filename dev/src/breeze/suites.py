# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The test suites: where they are, how they are divided, and which modules have to be covered by them."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from breeze.control_plane import control_plane_binaries, control_plane_possible
from breeze.paths import BUILD, CORE, DEV, PROVIDER, PROVIDER_PACKAGE, ROOT, relative
from breeze.steps import console, run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Branch coverage, in percent, that each of a suite's ``covered`` modules needs.
MINIMUM_COVERAGE = 95


class Part(StrEnum):
    """One of the two parts of a suite, as an expression about the tests' markers."""

    SHORT = "not long"
    LONG = "long"


class Suite(NamedTuple):
    """A directory of tests."""

    tests: Path
    covered: tuple[Path, ...] = ()
    """Modules without side effects, for which there is no excuse for an untested branch."""
    on_control_plane: bool = False
    """Whether the tests use a real control plane where this machine has one."""
    options: tuple[str, ...] = ()
    """What pytest is told if nobody tells it anything else."""
    has_long_tests: bool = False
    """Whether tests are marked ``long``. In a suite without any, pytest would complain that it finds none."""


def _modules(package: Path, *names: str) -> tuple[Path, ...]:
    """Find modules by their paths, and those of subpackages by the path of the folder.

    :raises ValueError: if there is none: one that was moved would not be measured any more, unnoticed.
    """
    return tuple(module for name in names for module in _modules_called(package / name))


def _modules_called(name: Path) -> list[Path]:
    modules = [*name.parent.glob(f"{name.name}.py"), *sorted(name.glob("[!_]*.py"))]
    if not modules:
        raise ValueError(f"there is no module {name}")
    return modules


#: Each process has a PostgreSQL of its own.
_IN_PARALLEL = ("--numprocesses=logical", "--maxprocesses=8", "--dist=worksteal")

SUITES = {
    "core-tests": Suite(
        CORE / "tests",
        _modules(CORE / "src" / "airflow_resilience", "context", "decision", "ledger", "retry_policy"),
        options=_IN_PARALLEL,
        has_long_tests=True,
    ),
    "providers-tests": Suite(
        PROVIDER / "tests",
        _modules(
            PROVIDER_PACKAGE,
            *("executors/adoption/plan", "executors/failures/assessment"),
            *("executors/launches/hosts", "executors/launches/identity"),
            *("pods/api/retries", "pods/diagnosis", "pods/diagnosis/causes", "pods/facts"),
        ),
        options=_IN_PARALLEL,
        has_long_tests=True,
    ),
    # A control plane, an API server or a database is shared by the tests of a module.
    "dev-tests": Suite(DEV / "tests", options=("--numprocesses=2", "--dist=loadfile")),
    # They wait more than they compute. The tests of a module share its deployment.
    "system-tests": Suite(
        ROOT / "tests",
        on_control_plane=True,
        options=("--numprocesses=2", "--dist=loadfile"),
        has_long_tests=True,
    ),
}

#: What needs neither a cluster nor another version of anything, and does not search at random.
_UNIT_TESTS = (SUITES["core-tests"].tests, SUITES["providers-tests"].tests / "unit")


def run_unit_tests() -> int:
    """Run the unit tests of both distributions, without measuring coverage, and return pytest's exit code."""
    return run_tool("pytest", *map(relative, _UNIT_TESTS), *_IN_PARALLEL, "-m", Part.SHORT.value)


def run_suite(name: str, extra: Sequence[str] = (), *, part: Part | None = None) -> int:
    """Run one suite.

    :param name: a key of :data:`SUITES`.
    :param extra: arguments for pytest; a path in the suite replaces the whole of it. With any, the run is
        taken for a partial one and coverage is not measured.
    :param part: run only this part; None: the whole suite. Coverage is asked for without the long tests.
    :returns: the exit code: pytest's, or 1 where a module is covered too little.
    """
    suite = SUITES[name]
    env = {"COVERAGE_FILE": str(BUILD / "coverage" / name)}
    if suite.on_control_plane and control_plane_possible() and (binaries := control_plane_binaries()):
        env["CONTROL_PLANE_BINARIES"] = str(binaries)
    if extra:
        chosen = any((ROOT / word).is_relative_to(suite.tests) for word in extra)
        return run_tool("pytest", *([] if chosen else [relative(suite.tests)]), *extra, env=env)
    options = [*suite.options, *(["-m", part.value] if part and suite.has_long_tests else [])]
    if part is Part.LONG or not suite.covered:
        return run_tool("pytest", relative(suite.tests), *options, env=env)
    exit_code = run_tool("pytest", relative(suite.tests), *options, "--cov", "--cov-report=", env=env)
    return exit_code or _check_coverage(suite, env)


def _check_coverage(suite: Suite, env: Mapping[str, str]) -> int:
    modules = sorted(relative(module) for module in suite.covered)
    report = Path(f"{env['COVERAGE_FILE']}.json")
    if exit_code := run_tool(
        "coverage", "json", "-q", f"--include={','.join(modules)}", "-o", report, env=env
    ):
        return exit_code
    files = json.loads(report.read_text())["files"]
    shortfalls = [shortfall for module in modules if (shortfall := _shortfall(module, files[module]))]
    for shortfall in shortfalls:
        console.print(shortfall)
    return int(bool(shortfalls))


def _shortfall(module: str, measured: Mapping[str, Any]) -> str | None:
    """Say what a module's tests lack, None if it is covered well enough."""
    percent = measured["summary"]["percent_covered"]
    if percent >= MINIMUM_COVERAGE:
        return None
    return (
        f"{module}: branch coverage is {percent:.1f} % and has to be at least {MINIMUM_COVERAGE} %;"
        f" lines {measured['missing_lines']} and branches {measured['missing_branches']} are missing"
    )
