# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The ./breeze script, with everything that it would download replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from breeze.paths import PROJECTS, ROOT

#: A Python in whose environments pip and uv are this script: it notes that it was called, and does nothing.
FAKE_PYTHON = """#!/bin/sh
case "$1 $2" in
    "-c import"*) exit 0 ;;
    "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$FAKES/uv" "$3/bin/uv" ;;
    "-m pip") echo pip >>"$CALLS" ;;
    "-m breeze") shift 2; echo "breeze $*" ;;
esac
"""
FAKE_UV = """#!/bin/sh
echo "uv $1 $2" >>"$CALLS"
if [ "$1" = venv ]; then
    for last; do :; done
    mkdir -p "$last/bin"
    cp "$FAKES/python3" "$last/bin/python"
fi
"""


@pytest.fixture
def run(tmp_path):
    """Run ./breeze of a checkout that has only what the script reads; tells what it called and printed."""
    checkout, fakes, calls = tmp_path / "check out", tmp_path / "fakes", tmp_path / "calls"
    for name in ["breeze", "requirements.lock", "dev/bootstrap.txt", "pyproject.toml"] + [
        f"{project.relative_to(ROOT)}/pyproject.toml" for project in PROJECTS
    ]:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    fakes.mkdir()
    for name, text in (("python3", FAKE_PYTHON), ("uv", FAKE_UV)):
        (fakes / name).write_text(text)
        (fakes / name).chmod(0o755)
    for tool in ("cat", "chmod", "cksum", "cp", "dirname", "mkdir", "rm", "sh", "sleep"):
        (fakes / tool).symlink_to(shutil.which(tool))

    def run_wrapper(*arguments):
        calls.write_text("")
        done = subprocess.run(
            [fakes / "sh", checkout / "breeze", *arguments],
            cwd=tmp_path,
            env={"PATH": str(fakes), "FAKES": str(fakes), "CALLS": str(calls)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, calls.read_text().splitlines()

    run_wrapper.checkout = checkout
    run_wrapper.fakes = fakes
    return run_wrapper


def test_the_first_start_installs_and_the_second_only_runs(run):
    first, calls = run("testing", "all")
    assert first.stdout == "breeze testing all\n", first.stderr
    assert calls == ["pip", "uv venv --quiet", "uv pip install", "uv pip install"]
    second, calls = run("demo")
    assert (second.stdout, second.stderr, calls) == ("breeze demo\n", "", [])


@pytest.mark.parametrize("changed", ["requirements.lock", "dev/pyproject.toml", "breeze"])
def test_a_change_of_what_is_installed_installs_again(run, changed):
    run()
    with (run.checkout / changed).open("a") as file:
        file.write("\n# changed\n")
    _, calls = run()
    assert calls == ["uv pip install", "uv pip install"]


def test_an_environment_whose_python_is_gone_is_made_again(run):
    run()
    (run.checkout / ".venv" / "bin" / "python").unlink()
    done, calls = run("demo")
    assert done.stdout == "breeze demo\n"
    assert "uv venv --quiet" in calls


def test_without_python_it_says_what_to_install(run):
    (run.fakes / "python3").unlink()
    done, calls = run()
    assert done.returncode == 1
    assert "no Python 3.11, 3.12 or 3.13" in done.stderr
    assert "apt-get install" in done.stderr
    assert calls == []


def test_the_lock_of_a_killed_run_does_not_stop_the_next(run):
    lock = run.checkout / ".build" / "bootstrap.lock"
    lock.mkdir(parents=True)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (lock / "pid").write_text(str(ended.pid))
    done, _ = run("demo")
    assert done.stdout == "breeze demo\n"
    assert not lock.exists()


def test_the_wrapper_can_be_executed():
    assert os.access(Path(ROOT / "breeze"), os.X_OK)
