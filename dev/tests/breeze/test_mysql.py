# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What ``breeze testing mysql`` runs, up to the point where it would take minutes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from breeze import mysql
from breeze.paths import ROOT

FETCHED = Path("/fetched")


@pytest.fixture
def runs(monkeypatch):
    """Give the runs of pytest: the words after pytest's name, and the variables."""
    runs = []

    def run_program(words, *, env):
        runs.append((words[words.index("pytest") + 1 :], env))
        return 0

    fetched = subprocess.CompletedProcess([], 0, stdout=f"{FETCHED}\n")
    monkeypatch.setattr(mysql.subprocess, "run", lambda *_, **__: fetched)
    monkeypatch.setattr(mysql, "build_distributions", lambda folder: [folder / "ours.whl"])
    monkeypatch.setattr(mysql, "make_environment", lambda *_, **__: Path("python"))
    monkeypatch.setattr(mysql, "control_plane_environment", lambda: {"CONTROL_PLANE_BINARIES": "/programs"})
    monkeypatch.setattr(mysql, "run_program", run_program)
    return runs


def test_tests_of_the_database_run_and_a_deployment(runs):
    assert mysql.check_mysql() == 0
    (unit, _), (deployment, _) = runs
    assert unit[-2:] == ["-m", "database and not long"]
    assert deployment[-1] == "tests/test_each_version.py"
    assert (ROOT / deployment[-1]).exists()
    assert all(
        (ROOT / word).exists() for word in unit if word.startswith(("airflow-core", "providers", "dev"))
    )
    for _, env in runs:
        assert env["MYSQL_BINARIES"] == str(FETCHED)
        assert env["CONTROL_PLANE_BINARIES"] == "/programs"


def test_other_arguments_are_for_pytest_alone(runs):
    assert mysql.check_mysql(["tests/test_features.py", "-x"]) == 0
    ((words, _),) = runs
    assert words[-2:] == ["tests/test_features.py", "-x"]
    assert "-m" not in words


@pytest.mark.parametrize("failing", ["database and not long", "tests/test_each_version.py"])
def test_either_may_fail(runs, monkeypatch, failing):
    monkeypatch.setattr(mysql, "run_program", lambda words, **_: int(failing in words))
    assert mysql.check_mysql() == 1


def test_nothing_runs_without_a_server_or_an_environment(runs, monkeypatch):
    monkeypatch.setattr(mysql, "make_environment", lambda *_, **__: None)
    assert mysql.check_mysql() == 1
    failed = subprocess.CompletedProcess([], 1, stdout="")
    monkeypatch.setattr(mysql.subprocess, "run", lambda *_, **__: failed)
    assert mysql.check_mysql() == 1
    assert not mysql.mysql_possible()
    assert runs == []


def test_without_a_compiler_it_is_not_possible(runs, monkeypatch, capsys):
    assert mysql.mysql_possible()
    monkeypatch.setattr(mysql.shutil, "which", lambda _: None)
    assert not mysql.mysql_possible()
    assert "compiler" in capsys.readouterr().out
