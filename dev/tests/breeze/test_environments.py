# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Virtual environments, without installing anything into them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from breeze import environments

PRINTS_WHERE = "import only_here; print(only_here.__file__)"


variables = []
"""Those that the commands were given."""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Give a function that makes an environment, of which only the first command is run: it is empty."""
    lock = tmp_path / "lock"
    lock.touch()
    variables.clear()
    monkeypatch.setattr(environments, "BUILD", tmp_path)
    monkeypatch.setattr(environments, "LOCK", lock)

    def run_program(command, *, env):
        variables.append(env)
        if command[1] == "venv":
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", command[-1]], check=True)
        return 0

    monkeypatch.setattr(environments, "run_program", run_program)
    return environments.make_environment


def test_modules_of_sources_can_be_imported_whatever_the_environment_variables(made, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "only_here.py").touch()
    python = made("some", [], sources=[source])
    done = subprocess.run([python, "-c", PRINTS_WHERE], env={}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(source / "only_here.py")

    assert made("some", []) == python
    assert subprocess.run([python, "-c", PRINTS_WHERE], env={}, check=False, capture_output=True).returncode


def test_there_is_none_if_a_command_fails(made, monkeypatch):
    monkeypatch.setattr(environments, "run_program", lambda command, *, env: 2)
    assert made("some", []) is None


def test_what_has_to_be_compiled_gets_its_variables(made):
    made("some", [], env={"CFLAGS": "-I/headers"})
    assert variables == [{"CFLAGS": "-I/headers"}] * 3


def test_pythons_are_found_on_the_path_and_in_pyenv(monkeypatch, tmp_path):
    def put(path, *, version, code=0):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho Python {version}\nexit {code}\n")
        path.chmod(0o755)
        return path

    own = put(tmp_path / "own", version="3.11.7")
    # As pyenv has it on PATH for a version that is not chosen.
    put(tmp_path / "bin" / "python3.12", version="3.12.1", code=127)
    installed = put(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python", version="3.12.1")
    on_path = put(tmp_path / "bin" / "python3.13", version="3.13.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr("sys.executable", str(own))
    assert environments.find_pythons() == {"3.11": own, "3.12": installed, "3.13": on_path}
    installed.unlink()
    assert environments.find_pythons() == {"3.11": own, "3.13": on_path}
