# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What no tool of others checks: the rules of the repository, and help at once."""

from __future__ import annotations

import subprocess

import pytest

from breeze import static_checks
from breeze.paths import ROOT


@pytest.mark.parametrize(
    ("line", "found"),
    [("see " + "pypi" + ".org", True), ("in /" + "home/me/x", True), ("in docs/home/page", False)],
)
def test_what_holds_on_one_machine_alone_is_found(tmp_path, monkeypatch, line, found):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "page.md").write_text(line)
    monkeypatch.setattr(static_checks, "ROOT", tmp_path)
    assert static_checks._find_nothing(*static_checks.OF_ONE_MACHINE) == found


def test_help_needs_no_environment(tmp_path):
    for name in ("breeze", "CONTRIBUTING.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    done = subprocess.run(["sh", tmp_path / "breeze", "--help"], capture_output=True, text=True, check=True)
    assert "./breeze testing all" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"breeze", "CONTRIBUTING.md"}
