# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Whether the lock fits the projects."""

from __future__ import annotations

import pytest

from breeze import locking


@pytest.fixture
def project(tmp_path, monkeypatch):
    """One project with one dependency, which is locked."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ours"\ndependencies = ["Some.Thing>=2"]\n')
    (tmp_path / "requirements.lock").write_text("some-thing==2.1 \\\n    --hash=sha256:00\n")
    monkeypatch.setattr(locking, "PROJECTS", (tmp_path,))
    monkeypatch.setattr(locking, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr("breeze.paths.ROOT", tmp_path)
    assert locking.unlocked_requirements() == []
    return tmp_path


def test_a_version_that_the_project_refuses_is_not_enough(project):
    (project / "requirements.lock").write_text("some-thing==1.9 \\\n")
    (problem,) = locking.unlocked_requirements()
    assert "Some.Thing>=2" in problem


def test_one_version_for_each_python_is_enough(project):
    (project / "requirements.lock").write_text(
        "some-thing==1.0 ; python_full_version < '3.12' \\\n"
        "some-thing==3.0 ; python_full_version >= '3.12' \\\n"
    )
    assert locking.unlocked_requirements() == []


def test_a_new_dependency_is_missing(project):
    (project / "pyproject.toml").write_text('[project]\nname = "ours"\ndependencies = ["other", "ours"]\n')
    (problem,) = locking.unlocked_requirements()
    assert "other" in problem


@pytest.fixture
def resolved(project, monkeypatch):
    """Give a function that says what uv resolves to; None: it cannot."""

    def resolve(pins):
        def run_program(command):
            assert "--resolution=lowest-direct" in command
            if pins is not None:
                command[command.index("-o") + 1].write_text(pins)
            return int(pins is None)

        monkeypatch.setattr(locking, "run_program", run_program)

    monkeypatch.setattr(locking, "BUILD", project)
    monkeypatch.setattr(locking, "DISTRIBUTIONS", (project,))
    return resolve


def test_the_lowest_versions_are_those_of_what_is_required_directly(resolved):
    resolved("further==9.0\nsome-thing==2.0\n    # by hand\n")
    assert locking.lowest_versions() == ["some-thing==2.0"]
    resolved(None)
    assert locking.lowest_versions() == []


def test_a_lower_bound_that_is_never_installed_is_none(resolved, capsys):
    resolved("some-thing==2.1\n")
    assert locking.lowest_versions() == []
    assert "some-thing==2.1 is the oldest that can be installed, and 2 " in capsys.readouterr().out
