# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which tests run with which versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from breeze import compat
from breeze.paths import LOCK, ROOT

PROGRAMS = {"CONTROL_PLANE_BINARIES": "/programs"}


@pytest.fixture
def runs(monkeypatch):
    """Give the runs of pytest: the name of the environment, the words after pytest's name, the variables."""
    runs = []

    def make_environment(name, wheels, requirements, *, sources):
        in_place = [wheel.name for wheel in wheels if wheel.name.startswith("in-place-")]
        provider = next(word.partition("==")[2] for word in requirements if word.startswith(compat.OFFICIAL))
        assert in_place == ([f"in-place-{provider}.whl"] if name.endswith("-in-place") else [])
        return Path(name)

    def run_program(words, *, env, in_one_piece):
        assert in_one_piece
        runs.append((words[0].name, words[words.index("pytest") + 1 :], env))
        return 0

    monkeypatch.setattr(compat, "build_distributions", lambda folder: [folder / "ours.whl"])
    monkeypatch.setattr(compat, "make_environment", make_environment)
    monkeypatch.setattr(compat, "make_in_place_wheel", lambda version: Path(f"in-place-{version}.whl"))
    monkeypatch.setattr(compat, "control_plane_environment", lambda: PROGRAMS)
    monkeypatch.setattr(compat, "run_program", run_program)
    return runs


IN_PLACE = {str(pair) for pair in compat._IN_PLACE}


def of(runs, tests):
    return [(name, words, env) for name, words, env in runs if tests in words]


CONTRACT = "providers/cncf/kubernetes_resilience/tests/contract"


def test_without_full_there_are_only_contract_tests_with_each_version(runs):
    assert compat.check_versions() == 0
    names = [name for name, _, _ in of(runs, CONTRACT)]
    assert len(names) == len(runs) == len(compat._COVERING) + len(IN_PLACE)
    assert set(names) >= IN_PLACE
    assert all(any(f"airflow-{core}-" in name for name in names) for core in compat._CORES)
    assert all(any(name.endswith(f"-{provider}") for name in names) for provider in compat._PROVIDERS[:-1])


def test_with_full_there_are_all_pairs_and_a_deployment_on_each_airflow_but_the_locked(runs):
    assert compat.check_versions(full=True) == 0
    assert len(of(runs, CONTRACT)) == len(compat._CORES) * len(compat._PROVIDERS) + len(IN_PLACE)
    assert {name for name, _, _ in of(runs, CONTRACT)} >= IN_PLACE
    in_place = of(runs, "tests/test_each_version.py")
    assert [name for name, _, _ in in_place] == [str(pair) for pair in compat._DEPLOYED if pair.in_place]
    assert all(words[-2:] == ["-m", "each_version"] for _, words, _ in in_place)
    deployments = [*of(runs, "tests"), *in_place]
    # Two run at once: which one is told of first is a matter of luck.
    assert sorted(name for name, _, _ in deployments) == sorted(str(pair) for pair in compat._DEPLOYED)
    assert all(words[-3:] == ["tests", "-m", "each_version"] for _, words, _ in of(runs, "tests"))
    assert all(env.items() >= PROGRAMS.items() for _, _, env in deployments)
    locked = [core for core in compat._CORES if f"apache-airflow-core=={core} " in LOCK.read_text()]
    assert len(locked) == 1
    beside = [pair.core for pair in compat._DEPLOYED if not pair.in_place]
    assert sorted([*locked, *beside]) == sorted(compat._CORES)
    assert [pair.core for pair in compat._DEPLOYED if pair.in_place] == locked


def test_there_are_tests_with_that_marker():
    marked = f"pytest.mark.{compat.EACH_VERSION}"
    assert any(marked in module.read_text() for module in (ROOT / "tests").glob("test_*.py"))


@pytest.mark.parametrize("failing", [CONTRACT, "tests"])
def test_either_may_fail(runs, monkeypatch, failing):
    monkeypatch.setattr(compat, "run_program", lambda words, **_: int(failing in words))
    assert compat.check_versions(full=True) == 1


def test_nothing_runs_without_wheels_or_without_an_environment(runs, monkeypatch):
    monkeypatch.setattr(compat, "make_environment", lambda *_, **__: None)
    assert compat.check_versions() == 1
    monkeypatch.setattr(compat, "make_in_place_wheel", lambda _: None)
    assert compat.check_versions() == 1
    monkeypatch.setattr(compat, "build_distributions", lambda folder: [])
    assert compat.check_versions() == 1
    assert runs == []
