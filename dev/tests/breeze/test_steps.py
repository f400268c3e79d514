# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Running steps, and single suites."""

from __future__ import annotations

import json
from threading import Barrier

import pytest

from breeze import suites
from breeze.steps import Step, run_program, run_steps


@pytest.mark.parametrize(
    ("keep_going", "expected"), [(True, ["first", "second", "third"]), (False, ["first", "second"])]
)
def test_a_failed_step_fails_all_and_may_end_them(capsys, keep_going, expected):
    ran = []

    def step(name, code):
        return Step(name, lambda: ran.append(name) or code)

    steps = [step("first", 0), step("second", 3), step("third", 0)]
    assert run_steps("title", steps, keep_going=keep_going) == 1
    assert ran == expected
    summary = capsys.readouterr().out.split("title")[1]
    assert all(word in summary for word in ("first", "FAILED (3)", "passed", "third"))
    assert ("not run" in summary) is not keep_going


def test_success_is_zero():
    assert run_steps("title", [Step("only", lambda: 0)]) == 0


def test_a_program_cannot_wait_for_the_keyboard(capfd):
    assert run_program(["sh", "-c", "cat; exit 4"]) == 4


def test_the_output_of_a_program_beside_others_comes_in_one_piece(capfd):
    assert run_program(["sh", "-c", "echo [one]; echo two >&2; exit 3"], in_one_piece=True) == 3
    assert capfd.readouterr().out.endswith("[one]\ntwo\n\n")


def test_steps_run_at_once():
    meeting = Barrier(2)

    def meet() -> int:
        meeting.wait()
        return 0

    assert run_steps("title", [Step("one", meet), Step("other", meet)], at_once=2) == 0


@pytest.mark.parametrize(
    ("arguments", "codes", "percents", "expected", "runs"),
    [
        ([], [0, 0, 0], [95, 100], 0, ["pytest", "pytest", "coverage"]),
        ([], [0, 0, 0], [94.9, 100], 1, ["pytest", "pytest", "coverage"]),
        ([], [0, 0, 2], [], 2, ["pytest", "pytest", "coverage"]),
        ([], [0, 1], [], 1, ["pytest", "pytest"]),
        ([], [1], [], 1, ["pytest"]),
        (["-k", "one"], [0], [], 0, ["pytest"]),
    ],
)
def test_coverage_is_asked_for_when_the_whole_suite_has_passed(
    monkeypatch, tmp_path, capsys, arguments, codes, percents, expected, runs
):
    suite = suites.SUITES["core-tests"]
    suite = suite._replace(covered=suite.covered[:2])
    low = suites.relative(suite.covered[0])
    tools = []

    def run_tool(tool, *words, env):
        tools.append(tool)
        if percents and tool == "coverage":
            files = {
                suites.relative(module): {
                    "summary": {"percent_covered": percent},
                    "missing_lines": [7],
                    "missing_branches": [[8, 9]],
                }
                for module, percent in zip(suite.covered, percents, strict=True)
            }
            words[-1].write_text(json.dumps({"files": files}))
        return codes[len(tools) - 1]

    monkeypatch.setattr(suites, "BUILD", tmp_path)
    monkeypatch.setitem(suites.SUITES, "core-tests", suite)
    monkeypatch.setattr(suites, "run_tool", run_tool)
    assert suites.run_suite("core-tests", arguments) == expected
    assert tools == runs
    assert (f"{low}: branch coverage is 94.9 %" in capsys.readouterr().out) == (94.9 in percents)


def test_modules_that_have_to_be_covered_exist(tmp_path):
    (tmp_path / "package").mkdir()
    for name in ("one.py", "package/__init__.py", "package/two.py"):
        (tmp_path / name).touch()
    assert suites._modules(tmp_path, "one", "package") == (tmp_path / "one.py", tmp_path / "package/two.py")
    with pytest.raises(ValueError, match="there is no module"):
        suites._modules(tmp_path, "one", "moved")


def test_what_covers_them_exists(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "test_one.py").touch()
    assert suites._tests_of(tmp_path, "one", "package") == (tmp_path / "test_one.py", tmp_path / "package")
    with pytest.raises(ValueError, match="there is no test"):
        suites._tests_of(tmp_path, "one", "moved")
