# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A test that fails ends the run, whatever another process does, and the reason stands at its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from breeze.paths import ROOT

CONFTEST = """
import pytest

pytest_plugins = ["breeze.fail_fast"]

@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    import breeze.fail_fast

    breeze.fail_fast.PATIENCE = {patience}
"""

FAILS = """
from pathlib import Path
from time import sleep

def test_that_fails():
    while not Path("begun").exists():
        sleep(0.01)
    print("a line of a log\\n" * 100)
    raise AssertionError("this is the reason")

def test_that_waits(request):
    while not request.session.shouldfail:
        sleep(0.01)
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
    ("failures", "patience", "said"),
    [(1, 600, "stopping after 1 failures"), (3, 0, "stopped after a failure")],
)
def test_it_ends_all_processes_and_says_why(tmp_path, failures, patience, said):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(patience=patience))
    (tmp_path / "test_a.py").write_text(FAILS)
    (tmp_path / "test_b.py").write_text(WAITS)
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "no:cacheprovider"]
    options += ["--numprocesses=2", "--dist=loadfile", f"--maxfail={failures}", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    at_once, _, rest = done.stdout.partition("a line of a log")
    assert "AssertionError: this is the reason" in at_once
    assert any("AssertionError: this is the reason" in line for line in rest.splitlines()[-10:])
    assert said in rest
    assert not (tmp_path / "another").exists()
