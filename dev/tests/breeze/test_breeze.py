# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a fresh checkout answers at once."""

from __future__ import annotations

import subprocess

from breeze.paths import ROOT


def test_help_needs_no_environment(tmp_path):
    for name in ("breeze", "CONTRIBUTING.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    done = subprocess.run(["sh", tmp_path / "breeze", "--help"], capture_output=True, text=True, check=True)
    assert "./breeze testing all" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"breeze", "CONTRIBUTING.md"}
