# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What no tool of others checks: the rules of the repository, the first failure, and help at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from breeze import static_checks
from breeze.paths import ROOT

FAILS = """
from pathlib import Path
from time import sleep

def test_that_fails():
    while not Path("begun").exists():
        sleep(0.01)
    raise AssertionError("this is the reason")
"""

WAITS = """
from pathlib import Path
from time import sleep

import pytest

@pytest.mark.parametrize("number", range(5))
def test_that_waits(number, request):
    Path("another" if number else "begun").touch()
    while not request.session.shouldfail:
        sleep(0.01)
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [("see " + "pypi" + ".org", True), ("in /" + "home/me/x", True), ("in docs/home/page", False)],
)
def test_what_holds_on_one_machine_alone_is_found(tmp_path, monkeypatch, line, found):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "page.md").write_text(line)
    monkeypatch.setattr(static_checks, "ROOT", tmp_path)
    assert static_checks._find_nothing(*static_checks.OF_ONE_MACHINE) == found


def test_the_first_failure_ends_all_processes_and_says_why(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_a.py").write_text(FAILS)
    (tmp_path / "test_b.py").write_text(WAITS)
    words = ["-p", "no:cacheprovider", "--numprocesses=2", "--dist=loadfile", "--exitfirst"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "AssertionError: this is the reason" in done.stdout[-2000:]
    assert not (tmp_path / "another").exists()


def test_help_needs_no_environment(tmp_path):
    for name in ("breeze", "CONTRIBUTING.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    done = subprocess.run(["sh", tmp_path / "breeze", "--help"], capture_output=True, text=True, check=True)
    assert "./breeze testing all" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"breeze", "CONTRIBUTING.md"}
