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
