# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A real control plane, built once for each machine, and the tests of what an API server does, on it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import typer

from breeze.paths import DEV, ROOT
from breeze.steps import console, run_tool

_COMMAND = [sys.executable, str(ROOT / "scripts" / "build_control_plane.py")]
_TESTS = [DEV / "tests" / name for name in ("conformance", "kubelet")]
#: A TLS connection says goodbye in the background, for which the event loop of a test does not wait.
_PYTEST_OPTIONS = ("-W", "ignore:unclosed:ResourceWarning")


def control_plane_binaries() -> Path:
    """Find the folder of the programs, or build them, which takes minutes.

    :raises CalledProcessError: if they cannot be built on this machine; the reason has been printed.
    """
    return Path(subprocess.check_output(_COMMAND, text=True).strip())


def show_control_plane() -> int:
    """Build the control plane, if that has not been done; a matter of minutes, on Debian only."""
    console.print(f"The control plane is in {control_plane_binaries()}", soft_wrap=True)
    return 0


def control_plane_possible() -> bool:
    """Tell whether this machine has, or can build, a control plane; why not has been printed."""
    return subprocess.run([*_COMMAND, "--check"], check=False).returncode == 0


def control_plane_environment() -> dict[str, str]:
    """Return the environment variables of system tests that are to be on a control plane."""
    return {"CONTROL_PLANE_BINARIES": str(control_plane_binaries())}


def run_conformance(context: typer.Context) -> int:
    """Test on a real API server what dev-tests tests on the embedded one. Other arguments go to pytest."""
    from cluster_lab.control_plane import ControlPlane

    with (
        tempfile.TemporaryDirectory(prefix="control-plane-") as folder,
        ControlPlane(control_plane_binaries(), Path(folder)) as control_plane,
    ):
        # Its cache now begins late in the cluster's history, as with one that has run for a while; from a
        # new one every version can be watched.
        control_plane.kill_apiserver()
        control_plane.start_apiserver()
        console.print(f"The control plane runs: {control_plane.url}")
        env = {
            "CONFORMANCE_KUBECONFIG": str(control_plane.kubeconfig),
            "CONFORMANCE_ETCD": control_plane.etcd_url,
        }
        return run_tool("pytest", *_TESTS, *_PYTEST_OPTIONS, *context.args, env=env)
