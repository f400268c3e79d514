# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing all`` and ``release`` together run every check and every test."""

from __future__ import annotations

from itertools import product

import pytest

from breeze import release_report, testing_commands
from breeze.everything import all_steps, quick_steps, release_steps
from breeze.release_report import reported
from breeze.steps import Step, run_steps
from breeze.suites import SUITES, Part


def names(steps):
    return {step.name for step in steps}


def test_every_command_is_in_one_of_the_two():
    registered = testing_commands.testing_app.registered_commands
    commands = {command.name or command.callback.__name__ for command in registered}
    # The test that chaos runs for as long as it is told to is one of the provider's long tests.
    assert names(all_steps() + release_steps()) >= {
        f"testing {name}" for name in commands - {"quick", "all", "release", "chaos"}
    }
    assert names(all_steps()).isdisjoint(names(release_steps()))
    assert quick_steps()[0].name in names(all_steps())


@pytest.mark.parametrize("marks", [*product([True, False], repeat=3)])
def test_whatever_its_marks_a_test_runs_once_on_the_newest_version(marks):
    has = dict(zip(("long", "each_version", "newest_version"), marks, strict=True))
    runs = [part for part in (Part.SHORT, Part.LONG, Part.COMPAT) if eval(part, dict(has))]
    # On other versions compat runs all that is marked each_version, and on this one what is marked so.
    assert len(runs) == (0 if has == {"long": True, "each_version": True, "newest_version": False} else 1)


def test_only_system_tests_are_left_to_compat():
    folders = [suite.tests for name, suite in SUITES.items() if name != "system-tests"]
    modules = [module.read_text() for folder in folders for module in folder.rglob("test_*.py")]
    assert modules
    assert not any(f"mark.{kind}_version" in module for kind in ("each", "newest") for module in modules)


def test_a_release_is_taken_up_where_it_stopped(monkeypatch, tmp_path):
    monkeypatch.setattr(release_report, "REPORT", report := tmp_path / "release.md")
    codes, ran, commit = {"one": 0, "two": 3, "three": 0}, [], ["c0ffee"]
    monkeypatch.setattr(release_report, "_commit", lambda: commit[0])

    def release(*, resume):
        ran.clear()
        steps = [Step(name, lambda name=name: ran.append(name) or codes[name]) for name in codes]
        return run_steps("title", reported(steps, resume=resume), keep_going=False)

    assert (release(resume=False), ran) == (1, ["one", "two"])
    codes["two"] = 0
    assert (release(resume=True), ran) == (0, ["two", "three"])
    rows = [line.split(" | ")[:2] for line in report.read_text().splitlines()[-4:]]
    assert rows == [["| one", "passed"], ["| two", "FAILED (3)"], ["| two", "passed"], ["| three", "passed"]]
    assert (release(resume=False), ran) == (0, [*codes])
    for commit[0] in ("decaf", "decaf-dirty", "decaf-dirty"):
        assert (release(resume=True), ran) == (0, [*codes])
