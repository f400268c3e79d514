# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing all`` and ``long`` together run every check and every test, and none of them twice."""

from __future__ import annotations

from collections import Counter

import pytest

from breeze import everything, suites, testing_commands
from breeze.everything import all_steps, long_steps, quick_steps
from breeze.paths import ROOT
from breeze.suites import SUITES


def names(steps):
    return [step.name for step in steps]


@pytest.fixture
def pytest_runs(monkeypatch):
    """Give a function that runs the suites of some steps; it returns what pytest is told of each suite."""
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
        *("testing core-tests, long", "testing providers-tests, long", "testing system-tests, long"),
    }


def test_every_test_is_in_exactly_one_of_the_two(pytest_runs):
    short, long = pytest_runs(all_steps()), pytest_runs(long_steps())
    assert short.keys() == {str(suite.tests.relative_to(ROOT)) for suite in SUITES.values()}
    for tests, words in short.items():
        whole = [word for word in words if not word.startswith("--cov")]
        if tests in long:
            assert whole[-2:] == ["-m", "not long"]
            # Those that are marked each_version are compat's.
            assert long[tests] == (*whole[:-1], "long and not each_version")
        else:
            # Nothing is left out here, whatever its marks.
            assert "-m" not in whole


def test_coverage_is_measured_in_the_shorter_one(pytest_runs):
    short = pytest_runs(all_steps())
    measured = {tests for tests, words in short.items() if "--cov" in words}
    assert measured == {str(suite.tests.relative_to(ROOT)) for suite in SUITES.values() if suite.covered}
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
