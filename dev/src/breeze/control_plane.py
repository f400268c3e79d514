# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The programs of a real control plane, built once for each machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from breeze.paths import ROOT

_COMMAND = [sys.executable, str(ROOT / "scripts" / "build_control_plane.py")]


def control_plane_binaries() -> Path | None:
    """Find the folder of the programs, or build them, which takes minutes.

    :returns: None if they cannot be built on this machine; the reason has been printed.
    """
    done = subprocess.run(_COMMAND, stdout=subprocess.PIPE, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def control_plane_environment() -> dict[str, str]:
    """Return the environment variables of system tests, for which a control plane is built if it can be."""
    binaries = control_plane_binaries() if control_plane_possible() else None
    return {"CONTROL_PLANE_BINARIES": str(binaries)} if binaries else {}


def control_plane_possible() -> bool:
    """Tell whether this machine has, or can build, a control plane; why not has been printed."""
    return subprocess.run([*_COMMAND, "--check"], check=False).returncode == 0
