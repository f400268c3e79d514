# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The rules that breeze static-checks has of its own."""

from __future__ import annotations

import subprocess

import pytest

from breeze import repository_rules

LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository that breaks no rule."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    core = tmp_path / "airflow-core"
    core.mkdir()
    for folder in (tmp_path, core):
        (folder / "LICENSE").write_text("the licence\n")
        (folder / "NOTICE").write_text("the notice\n")
    monkeypatch.setattr(repository_rules, "ROOT", tmp_path)
    monkeypatch.setattr("breeze.paths.ROOT", tmp_path)
    monkeypatch.setattr(repository_rules, "DISTRIBUTIONS", (core,))
    assert repository_rules.broken_rules() == []
    return tmp_path


@pytest.mark.parametrize(
    "line",
    # Written so that this file keeps the rule.
    [
        f"index-url = https://{repository_rules._REGISTRIES[0]}/simple",
        f"deb http://{repository_rules._REGISTRIES[4]}/debian bookworm main",
        "cd |home|somebody|airflow".replace("|", "/"),
        '"|work|main"'.replace("|", "/"),
    ],
)
def test_a_line_that_holds_on_one_machine_only_is_found(checkout, line):
    (checkout / "notes.md").write_text(f"fine\n{line}\n")
    (problem,) = repository_rules.broken_rules()
    assert problem.startswith("notes.md:2: ")


@pytest.mark.parametrize(
    "line", ["https://kubernetes.io/docs/home/pods", "a/work/b", "/opt/airflow", "see /workflows/list"]
)
def test_other_paths_and_addresses_are_fine(checkout, line):
    (checkout / "notes.md").write_text(f"{line}\n")
    assert repository_rules.broken_rules() == []


@pytest.mark.parametrize("name", ["module.py", "values.yaml", "breeze"])
def test_source_needs_the_licence_header(checkout, name):
    (checkout / name).write_text("text\n")
    assert repository_rules.broken_rules() == [f"{name}: the licence header is missing"]
    (checkout / name).write_text(LICENCE)
    assert repository_rules.broken_rules() == []


def test_ignored_files_are_not_looked_at(checkout):
    (checkout / ".gitignore").write_text("/.build/\n")
    (checkout / ".build").mkdir()
    (checkout / ".build" / "generated.py").write_text("text\n")
    assert repository_rules.broken_rules() == []


def test_each_distribution_has_the_same_licence(checkout):
    (checkout / "airflow-core" / "LICENSE").write_text("another\n")
    (checkout / "airflow-core" / "NOTICE").unlink()
    problems = repository_rules.broken_rules()
    assert [problem.split(":")[0] for problem in problems] == ["airflow-core/LICENSE", "airflow-core/NOTICE"]
