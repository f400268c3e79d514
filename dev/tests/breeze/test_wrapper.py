# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The ./breeze script answers a question without installing anything."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from breeze.paths import ROOT


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_needs_no_environment(tmp_path, words):
    for name in ("breeze", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run([tmp_path / "breeze", *words], capture_output=True, text=True, check=True)
    assert (
        "./breeze testing all [--keep-going]\n    what has to pass before a change is submitted"
        in done.stdout
    )
    assert "./breeze k8s build|start|status|shell|stop\n" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CONTRIBUTING.md", "breeze"]
