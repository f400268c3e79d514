# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze k8s``: a lab process in the background, with its files in .build/k8s/."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from typing import Annotated

import psutil
import typer

from breeze.control_plane import control_plane_binaries
from breeze.paths import BUILD
from breeze.steps import console
from testbed.lab import Lab

_HOME = BUILD / "k8s"
_STATE = _HOME / "state.json"
_KUBECONFIG = _HOME / "kubeconfig"
_STOP_TIMEOUT = 30.0


def build() -> int:
    """Build the control plane, if that has not been done; a matter of minutes, on Debian only."""
    console.print(f"The control plane is in {control_plane_binaries()}", soft_wrap=True)
    return 0


def start(nodes: Annotated[int, typer.Option(min=0, help="How many simulated nodes.")] = 3) -> int:
    """Start it in the background, and say where its kubeconfig is."""
    if _find() is None:
        binaries = control_plane_binaries()
        shutil.rmtree(_HOME, ignore_errors=True)
        _HOME.mkdir(parents=True)
        lab = Lab(_HOME, _KUBECONFIG, control_plane=binaries, nodes=nodes)
        lab.start()
        process = psutil.Process(lab.process.pid)
        _STATE.write_text(json.dumps([process.pid, process.create_time()]))
    words = f"The cluster runs. ./breeze k8s shell, or: export KUBECONFIG={_KUBECONFIG}"
    console.print(words, soft_wrap=True)
    return 0


def stop() -> int:
    """Stop what start has started."""
    if lab := _find():
        everything = [*lab.children(recursive=True), lab]
        lab.terminate()
        _, alive = psutil.wait_procs(everything, _STOP_TIMEOUT)
        for process in alive:
            process.kill()
        shutil.rmtree(_HOME, ignore_errors=True)
    console.print("The cluster has been stopped." if lab else "No cluster runs.")
    return 0


def status() -> int:
    """Say whether it runs, and show its nodes and pods; the exit code is 1 if it does not run."""
    return _run_in_cluster("kubectl", "get", "nodes,pods")


def shell() -> int:
    """Open a shell in which kubectl, and everything else that reads KUBECONFIG, is about this cluster."""
    return _run_in_cluster(os.environ.get("SHELL", "/bin/sh"))


def _run_in_cluster(*words: str) -> int:
    if _find() is None:
        console.print("No cluster runs: ./breeze k8s start")
        return 1
    console.print(f"The cluster runs; its files are in {_HOME}. {words[0]}:", soft_wrap=True)
    path = os.pathsep.join([str(control_plane_binaries()), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "KUBECONFIG": str(_KUBECONFIG), "PATH": path}
    env.pop("AIRFLOW_HOME", None)  # breeze's own
    return subprocess.run(words, env=env, check=False).returncode


def _find() -> psutil.Process | None:
    """Find the lab that an earlier command has started, if it runs."""
    if _STATE.exists():
        pid, started = json.loads(_STATE.read_text())
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # Another process may have got the number since.
            return process if process.create_time() == started else None
    return None
