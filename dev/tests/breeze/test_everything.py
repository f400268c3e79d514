# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing all`` and ``long`` together run every check and every test, and none of them twice."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from breeze import everything, suites, testing_commands
from breeze.everything import all_steps, long_steps, quick_steps
from breeze.paths import ROOT, relative
from breeze.suites import SUITES, Part


def names(steps):
    return [step.name for step in steps]


@pytest.fixture
def pytest_runs(monkeypatch):
    """Give a function that runs the suites of steps, and returns what pytest is told, by its first path."""
    calls = []
    monkeypatch.setattr(suites, "control_plane_environment", dict)
    monkeypatch.setattr(suites, "_check_coverage", lambda *_: 0)
    monkeypatch.setattr(suites, "run_tool", lambda tool, *words, env: calls.append(words) or 0)

    def run(steps):
        calls.clear()
        for step in steps:
            if step.name.removeprefix("testing ").removesuffix(", long") in SUITES:
                step.run()
        return {words[0]: words[1:] for words in calls}

    return run


def test_every_step_is_in_exactly_one_of_the_two(monkeypatch):
    monkeypatch.setattr(everything, "control_plane_possible", lambda: True)
    counts = Counter(names(all_steps()) + names(long_steps()))
    assert set(counts.values()) == {1}
    registered = testing_commands.testing_app.registered_commands
    commands = {command.name or command.callback.__name__ for command in registered}
    # The test that chaos runs for as long as it is told to is one of the provider's long tests.
    # That of MySQL is alone: its server is fetched from Debian's unstable release, which changes every day.
    alone = {f"testing {name}" for name in commands - {"quick", "all", "long", "chaos", "mysql"}}
    assert len(alone) == 7
    assert counts.keys() == alone | {
        *("static-checks", "build-docs", "demo"),
        *(f"testing {suite}, long" for suite in SUITES),
    }


def test_every_test_is_in_exactly_one_of_the_two(pytest_runs):
    short, long = pytest_runs(all_steps()), pytest_runs(long_steps())
    for suite in SUITES.values():
        tests = relative(suite.tests)
        words = short.pop(tests)
        whole = [word for word in words if not word.startswith("--ignore")]
        assert whole[-2:] == ["-m", "not long"]
        # Those that are marked each_version or newest_version are compat's.
        assert long[tests] == (*whole[:-1], "long and not each_version and not newest_version")
        if suite.covering:
            # What this run leaves out has another one.
            first, *others = ignored = [relative(path) for path in suite.covering]
            assert [word for word in words if word not in whole] == [f"--ignore={path}" for path in ignored]
            measured = [word for word in short.pop(first) if not word.startswith("--cov")]
            assert measured == [*others, *whole]
    assert not short


@pytest.mark.parametrize("marks", [*product([True, False], repeat=3)])
def test_whatever_its_marks_a_test_runs_once_on_the_newest_version(marks):
    has = dict(zip(("long", "each_version", "newest_version"), marks, strict=True))
    runs = [part for part in Part if eval(part, dict(has))]
    # On other versions compat runs all that is marked each_version, and on this one what is marked so.
    assert len(runs) == (0 if has == {"long": True, "each_version": True, "newest_version": False} else 1)


def test_only_system_tests_are_left_to_compat():
    folders = [suite.tests for name, suite in SUITES.items() if name != "system-tests"]
    modules = [module.read_text() for folder in folders for module in folder.rglob("test_*.py")]
    assert modules
    assert not any(f"mark.{kind}_version" in module for kind in ("each", "newest") for module in modules)


def test_coverage_is_measured_in_the_shorter_one(pytest_runs):
    short = pytest_runs(all_steps())
    measured = {tests for tests, words in short.items() if "--cov" in words}
    assert measured == {relative(suite.covering[0]) for suite in SUITES.values() if suite.covered}
    assert not any("--cov" in words for words in pytest_runs(long_steps()).values())


def test_the_quick_one_runs_nothing_that_the_next_one_does_not(monkeypatch):
    calls = []
    monkeypatch.setattr(suites, "run_tool", lambda *words: calls.append(words) or 0)
    static_checks, unit_tests = quick_steps()
    assert static_checks.name in names(all_steps())
    assert unit_tests.run() == 0
    ((tool, *paths, marker, expression),) = calls
    assert (tool, marker, expression) == ("pytest", "-m", "not long")
    tested = [ROOT / path for path in paths if not path.startswith("--")]
    assert tested
    assert all(any(path.is_relative_to(suite.tests) for suite in SUITES.values()) for path in tested)


def test_ci_runs_both():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line.partition(" ||")[0] for line in lines if line.startswith("./breeze testing")]
    assert commands == ["./breeze testing all", "./breeze testing long"]
