# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The test suites: where they are, and which modules have to be covered by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from breeze.control_plane import control_plane_binaries, control_plane_possible
from breeze.paths import BUILD, CORE, DEV, PROVIDER, PROVIDER_PACKAGE, ROOT, relative
from breeze.steps import console, run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Branch coverage, in percent, that each of a suite's ``covered`` modules needs.
MINIMUM_COVERAGE = 95


class Suite(NamedTuple):
    """A directory of tests."""

    tests: Path
    covered: tuple[Path, ...] = ()
    """Modules without side effects, for which there is no excuse for an untested branch."""
    on_control_plane: bool = False
    """Whether the tests use a real control plane where this machine has one."""
    options: tuple[str, ...] = ()
    """What pytest is told if nobody tells it anything else."""


def _modules(package: Path, *names: str) -> tuple[Path, ...]:
    """Find modules by their names, and those of subpackages by the name of the folder."""
    found = [module for name in names for module in sorted(package.glob(f"{name}.py"))]
    found += [module for name in names for module in sorted((package / name).glob("[!_]*.py"))]
    return tuple(found)


SUITES = {
    "core-tests": Suite(
        CORE / "tests",
        _modules(CORE / "src" / "airflow_resilience", "context", "decision", "ledger", "retry_policy"),
    ),
    "providers-tests": Suite(
        PROVIDER / "tests",
        _modules(PROVIDER_PACKAGE / "pods", "facts", "failure", "classify", "causes", "evidence"),
        options=("--numprocesses=2", "--dist=worksteal"),
    ),
    "dev-tests": Suite(DEV / "tests"),
    # They wait more than they compute. The tests of a module share its deployment.
    "system-tests": Suite(
        ROOT / "tests", on_control_plane=True, options=("--numprocesses=2", "--dist=loadfile")
    ),
}


def run_suite(name: str, extra: Sequence[str] = ()) -> int:
    """Run one suite.

    :param name: a key of :data:`SUITES`.
    :param extra: arguments for pytest; a path in the suite replaces the whole of it. With any, the run is
        taken for a partial one and coverage is not measured.
    :returns: the exit code: pytest's, or that of the first module that is covered too little.
    """
    suite = SUITES[name]
    env = {"COVERAGE_FILE": str(BUILD / "coverage" / name)}
    if suite.on_control_plane and control_plane_possible() and (binaries := control_plane_binaries()):
        env["CONTROL_PLANE_BINARIES"] = str(binaries)
    if extra or not suite.covered:
        chosen = any((ROOT / word).is_relative_to(suite.tests) for word in extra)
        options = extra or suite.options
        return run_tool("pytest", *([] if chosen else [relative(suite.tests)]), *options, env=env)
    options = (*suite.options, "--cov", "--cov-report=")
    exit_code = run_tool("pytest", relative(suite.tests), *options, env=env)
    return exit_code or _check_coverage(suite, env)


def _check_coverage(suite: Suite, env: dict[str, str]) -> int:
    console.print(f"Branch coverage of each of these has to be at least {MINIMUM_COVERAGE}%:")
    exit_codes = [
        run_tool(
            "coverage", "report", f"--include={relative(module)}", f"--fail-under={MINIMUM_COVERAGE}", env=env
        )
        for module in suite.covered
    ]
    return max(exit_codes)
