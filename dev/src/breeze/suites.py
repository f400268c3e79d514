# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The test suites: where they are, how they are divided, and which modules have to be covered by them."""

from __future__ import annotations

import json
from configparser import ConfigParser
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from breeze.paths import BUILD, CORE, DEV, PROVIDER, PROVIDER_PACKAGE, ROOT, relative
from breeze.steps import console, run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Branch coverage, in percent, that each of a suite's ``covered`` modules needs.
MINIMUM_COVERAGE = 95

_NEED_NO_TEST = ("if TYPE_CHECKING:", "raise NotImplementedError")
"""Lines that count for no coverage, as regular expressions."""


EACH_VERSION = "each_version"
"""The marker of the system tests that run with other versions of Airflow."""

_NEWEST_VERSION = "newest_version"
"""The marker of those that run with the newest one in the same go: what our executor meets there."""

_FAILURES = 3
"""After how many failures unit tests end: the next ones would say the same again."""


class Part(StrEnum):
    """A part of a suite, as an expression about the tests' markers."""

    SHORT = "not long"
    #: What :mod:`breeze.compat` runs on older versions shows nothing on the newest that other tests do not.
    LONG = f"long and not {EACH_VERSION} and not {_NEWEST_VERSION}"
    #: The rest of those, which is compat's as well.
    COMPAT = f"long and {_NEWEST_VERSION}"
    #: What a real control plane is to show: the short tests and the long ones.
    BUT_COMPAT = f"not {EACH_VERSION} and not {_NEWEST_VERSION}"


class Suite(NamedTuple):
    """A directory of tests."""

    tests: Path
    covered: tuple[Path, ...] = ()
    """Modules without side effects, for which there is no excuse for an untested branch."""
    covering: tuple[Path, ...] = ()
    """Their own tests, by which coverage is measured: all tests take half as long again if it is."""
    options: tuple[str, ...] = ()
    """What pytest is told if nobody tells it anything else."""
    failures: int = _FAILURES
    """After how many of them the suite ends, if it is not to keep going."""


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


def _tests_of(tests: Path, *names: str) -> tuple[Path, ...]:
    """Find the tests of modules by the modules' paths: a file for each, or a folder for that of a package.

    :raises ValueError: if there is none
    """
    return tuple(_test_of(tests / name) for name in names)


def _test_of(name: Path) -> Path:
    file = name.with_name(f"test_{name.name}.py")
    if not (found := name if name.is_dir() else file).exists():
        raise ValueError(f"there is no test {file}")
    return found


#: Modules and packages of the provider without side effects.
_PURE = (
    *("cli/description", "cli/standing"),
    *("executors/adoption/plan", "executors/failures/assessment"),
    *("executors/launches/hosts", "executors/launches/identity", "executors/tasks/row"),
    *("pods/api/retries", "pods/diagnosis", "pods/facts", "pods/images"),
)

#: Others, whose tests are those of what uses them.
_PURE_PARTS = (
    *("cli/circumstances", "cli/effective", "cli/explanation"),
    *("executors/policy_settings", "pods/diagnosis/causes"),
)
_TESTS_OF_PARTS = ("cli/explain", "cli/policy_show", "executors/settings")

_PURE_IN_CORE = ("context", "decision", "outages", "propagation/exceptions", "retry_policy")

#: Each process has a PostgreSQL of its own.
_IN_PARALLEL = ("--numprocesses=2", "--dist=worksteal")

SUITES = {
    "core-tests": Suite(
        CORE / "tests",
        _modules(CORE / "src" / "airflow_resilience", *_PURE_IN_CORE, "ledger"),
        _tests_of(CORE / "tests", *_PURE_IN_CORE, "ledger"),
        options=_IN_PARALLEL,
    ),
    "providers-tests": Suite(
        PROVIDER / "tests",
        _modules(PROVIDER_PACKAGE, *_PURE, *_PURE_PARTS),
        _tests_of(PROVIDER / "tests" / "unit", *_PURE, *_TESTS_OF_PARTS),
        options=_IN_PARALLEL,
    ),
    # A control plane, an API server or a database is shared by the tests of a module.
    "dev-tests": Suite(DEV / "tests", options=("--numprocesses=2", "--dist=loadfile")),
    # They wait more than they compute. The tests of a module share its deployment. Modules keep their order.
    "system-tests": Suite(
        ROOT / "tests",
        failures=1,
        options=("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder"),
    ),
}

#: What needs neither a cluster nor another version of anything, and does not search at random.
_UNIT_TESTS = (SUITES["core-tests"].tests, SUITES["providers-tests"].tests / "unit")


def run_unit_tests(env: Mapping[str, str] | None = None) -> int:
    """Run the unit tests of both distributions, without measuring coverage, and return pytest's exit code.

    :param env: variables to set besides those of this process.
    """
    words = (*map(relative, _UNIT_TESTS), *_IN_PARALLEL, f"--maxfail={_FAILURES}", "-m", Part.SHORT.value)
    return run_tool("pytest", *words, env=env)


def run_suite(
    name: str,
    extra: Sequence[str] = (),
    *,
    part: Part | None = None,
    keep_going: bool = False,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run one suite.

    :param name: a key of :data:`SUITES`.
    :param extra: arguments for pytest; a path in the suite replaces the whole of it. With any, the run is
        taken for a partial one and coverage is not measured.
    :param part: run only this part; None: the whole suite. Coverage is asked for with the short tests.
    :param keep_going: go on after as many failures as otherwise end the suite.
    :param env: variables to set besides those of this process.
    :returns: the exit code: pytest's, or 1 where a module is covered too little.
    """
    suite = SUITES[name]
    env = {"COVERAGE_FILE": str(BUILD / "coverage" / name), **(env or {})}
    if extra:
        chosen = any((ROOT / word).is_relative_to(suite.tests) for word in extra)
        return run_tool("pytest", *([] if chosen else [relative(suite.tests)]), *extra, env=env)
    options = [*suite.options, *(["-m", part.value] if part else [])]
    if not keep_going:
        options.append(f"--maxfail={suite.failures}")
    if part is Part.LONG or not suite.covered:
        return run_tool("pytest", relative(suite.tests), *options, env=env)
    modules = sorted(relative(module) for module in suite.covered)
    # Not by the name of the data file and a dot: those are erased before each run.
    config = BUILD / "coverage" / f"settings-of-{name}.ini"
    _configure_coverage(config, modules)
    covering = [*map(relative, suite.covering)]
    measured = ("--cov", f"--cov-config={config}", "--cov-report=")
    if (exit_code := run_tool("pytest", *covering, *options, *measured, env=env)) and not keep_going:
        return exit_code
    others = [f"--ignore={path}" for path in covering]
    exit_code = run_tool("pytest", relative(suite.tests), *others, *options, env=env) or exit_code
    return exit_code or _check_coverage(modules, config, env)


def _configure_coverage(config: Path, modules: Sequence[str]) -> None:
    """Have coverage measured of these modules alone: the tests take a third longer if it is of all code."""
    parser = ConfigParser()
    parser["run"] = {"branch": "true", "relative_files": "true", "include": "\n".join(modules)}
    parser["report"] = {"exclude_also": "\n".join(_NEED_NO_TEST)}
    config.parent.mkdir(parents=True, exist_ok=True)
    with config.open("w") as file:
        parser.write(file)


def _check_coverage(modules: Sequence[str], config: Path, env: Mapping[str, str]) -> int:
    report = Path(f"{env['COVERAGE_FILE']}.json")
    if exit_code := run_tool("coverage", "json", "-q", f"--rcfile={config}", "-o", report, env=env):
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
