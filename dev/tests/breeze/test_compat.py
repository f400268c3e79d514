# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which tests run with which versions."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from breeze import compat
from breeze.paths import LOCK, ROOT

PROGRAMS = {"CONTROL_PLANE_BINARIES": "/programs"}
LOWEST = [f"{compat.OFFICIAL}==10.21.0", "sqlalchemy==1.4.54"]


@pytest.fixture
def runs(monkeypatch):
    """Give the runs of pytest: the name of the environment, the words after pytest's name, the variables."""
    runs = []

    def make_environment(name, wheels, requirements, *, sources, python, overrides):
        assert (python == Path("/python3.12")) == name.endswith("-python-3.12")
        assert overrides == ([f"apache-airflow{it}==3.4.0b2" for it in ("", "-core")] if "b2" in name else ())
        in_place = [wheel.name for wheel in wheels if wheel.name.startswith("in-place-")]
        provider = next(word.partition("==")[2] for word in requirements if word.startswith(compat.OFFICIAL))
        assert in_place == ([f"in-place-{provider}.whl"] if name.endswith("-in-place") else [])
        assert (set(LOWEST) <= set(requirements)) == (name == "lowest")
        return Path(name)

    def run_program(words, *, env, in_one_piece):
        assert in_one_piece
        runs.append((words[0].name, words[words.index("pytest") + 1 :], env))
        return 0

    monkeypatch.setattr(compat, "build_distributions", lambda folder: [folder / "ours.whl"])
    monkeypatch.setattr(compat, "make_environment", make_environment)
    monkeypatch.setattr(compat, "make_in_place_wheel", lambda version: Path(f"in-place-{version}.whl"))
    monkeypatch.setattr(compat, "lowest_versions", lambda: LOWEST)
    monkeypatch.setattr(compat, "control_plane_environment", lambda: PROGRAMS)
    monkeypatch.setattr(compat, "run_program", run_program)
    monkeypatch.setattr(compat, "find_pythons", lambda: {"3.12": Path("/python3.12")})
    return runs


IN_PLACE = {str(pair) for pair in compat._IN_PLACE}
BESIDE = {*IN_PLACE, str(compat._COMING), "lowest"}
"""Those that are not pairs of supported versions."""


def of(runs, tests):
    return [(name, words, env) for name, words, env in runs if tests in words]


CONTRACT = "providers/cncf/kubernetes_resilience/tests/contract"


def test_without_full_there_are_only_contract_tests_with_each_version(runs):
    assert compat.check_versions() == 0
    names = [name for name, _, _ in of(runs, CONTRACT)]
    assert len(names) == len(runs) == len(compat._COVERING) + len(BESIDE)
    assert set(names) >= BESIDE
    assert all(any(f"airflow-{core}-" in name for name in names) for core in compat._CORES)
    assert all(any(name.endswith(f"-{provider}") for name in names) for provider in compat._PROVIDERS[:-1])


def test_with_full_there_are_all_pairs_and_deployments(runs):
    assert compat.check_versions(full=True) == 0
    assert len(of(runs, CONTRACT)) == len(compat._CORES) * len(compat._PROVIDERS) + len(BESIDE)
    assert {name for name, _, _ in of(runs, CONTRACT)} >= BESIDE
    deployments = {
        ("tests", "-m", "long and newest_version"): (compat._NEWEST,),
        ("tests", "-m", "each_version"): compat._DEPLOYED,
        ("tests/test_each_version.py", "-m", "each_version"): compat._DEPLOYED_BRIEFLY,
    }
    for words, wanted in deployments.items():
        found = [(name, env) for name, told, env in runs if tuple(told[-3:]) == words]
        # Two run at once: which one is told of first is a matter of luck.
        assert sorted(name for name, _ in found) == sorted(str(pair.on_this_machine) for pair in wanted)
        assert all(env.items() >= PROGRAMS.items() for _, env in found)
    names = [name for name, words, _ in runs if CONTRACT not in words]
    # What runs beside another one has an environment of its own.
    assert len(names) == len(set(names)) == sum(map(len, deployments.values()))
    # One has the Python that is wanted, for another one there is none.
    assert [pair.on_this_machine.python for pair in compat._DEPLOYED] == ["3.12", ""]


def test_what_the_pairs_that_meet_each_version_show_does_not_run_with_each_pair(runs):
    compat.check_versions(full=True)
    about_the_pair = ["-m", "not airflow_alone and not starts_airflow"]
    briefly = {name for name, words, _ in of(runs, CONTRACT) if words[-2:] == about_the_pair}
    fully = {name for name, words, _ in of(runs, CONTRACT) if words[-1] == CONTRACT}
    assert fully == {*map(str, compat._COVERING), *BESIDE}
    assert len(briefly) + len(fully) == len(of(runs, CONTRACT))
    modules = [ROOT / CONTRACT / f"test_{name}.py" for name in ("api_server", "metrics", "termination")]
    assert all("pytestmark = pytest.mark.airflow_alone" in module.read_text() for module in modules)


def test_each_airflow_is_deployed_with_the_oldest_and_the_newest_provider():
    locked = [
        (core, provider)
        for core, provider in product(compat._CORES, compat._PROVIDERS)
        if f"apache-airflow-core=={core} " in LOCK.read_text()
        and f"{compat.OFFICIAL}=={provider} " in LOCK.read_text()
    ]
    assert locked == [(compat._NEWEST.core, compat._NEWEST.provider)]
    deployed = [*compat._DEPLOYED, *compat._DEPLOYED_BRIEFLY]
    corners = [
        (pair.core, pair.provider) for pair in deployed if not pair.in_place and pair != compat._COMING
    ]
    assert sorted([*locked, *corners]) == sorted(
        product(compat._CORES, (compat._PROVIDERS[0], compat._PROVIDERS[-1]))
    )
    assert [(pair.core, pair.provider) for pair in deployed if pair.in_place] == locked
    assert compat._COMING in deployed


def test_the_documentation_has_a_row_for_each_deployment():
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in (ROOT / "docs" / "versions.md").read_text().splitlines()
        if "compat --full" in line and "| deployment" in line
    ]
    assert sorted(
        (core, provider.partition(",")[0], "in its place" in provider, python)
        for core, provider, python, *_ in rows
    ) == sorted(
        (pair.core, pair.provider, pair.in_place, pair.python or "that of the machine")
        for pair in (compat._NEWEST, *compat._DEPLOYED, *compat._DEPLOYED_BRIEFLY)
    )


def test_there_are_tests_with_that_marker():
    assert marked(compat.EACH_VERSION)


def test_the_documentation_has_a_row_for_each_module_that_runs_on_the_newest_version():
    rows = re.findall(
        r"`\./breeze testing system-tests tests/(\w+)\.py` \|$",
        (ROOT / "docs" / "versions.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) == 5
    assert sorted(rows) == sorted(marked("newest_version"))
    # If a test of these were not long, `testing all` would run it, and compat would not.
    assert set(rows) <= set(marked("long"))


def marked(name):
    """Return the modules of system tests that have a test with a marker."""
    return [
        module.stem
        for module in (ROOT / "tests").glob("test_*.py")
        if f"pytest.mark.{name}" in module.read_text()
    ]


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
