# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The cluster of ``breeze k8s``: a lab process in the background, with its files in .build/k8s/."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from breeze.control_plane import control_plane_binaries
from breeze.paths import BUILD, relative
from breeze.steps import console, run_program
from cluster_lab.managed_process import ProcessError
from testbed.lab import Lab, LabSettings

_HOME = BUILD / "k8s"
_STATE = _HOME / "state.json"
_KUBECONFIG = _HOME / "kubeconfig"
_STOP_TIMEOUT = 30.0


@dataclass(frozen=True)
class _Background:
    """A lab process that an earlier command has started."""

    pid: int
    started: float
    """By the clock of the system: another process may have got the number since."""
    binaries: str

    @classmethod
    def find(cls) -> Self | None:
        """Find it, if it runs."""
        if not _STATE.exists():
            return None
        state = cls(**json.loads(_STATE.read_text()))
        try:
            return state if psutil.Process(state.pid).create_time() == state.started else None
        except psutil.NoSuchProcess:
            return None

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to be about this cluster."""
        path = os.pathsep.join([self.binaries, os.environ.get("PATH", os.defpath)])
        return {"KUBECONFIG": str(_KUBECONFIG), "PATH": path}


def build() -> int:
    """Build the control plane and say where it is."""
    binaries = control_plane_binaries()
    if binaries is None:
        return 1
    console.print(f"The control plane is in {binaries}", soft_wrap=True)
    return 0


def start(nodes: int) -> int:
    """Start the cluster, unless it runs."""
    if _Background.find() is None:
        binaries = control_plane_binaries()
        if binaries is None:
            return 1
        shutil.rmtree(_HOME, ignore_errors=True)
        _HOME.mkdir(parents=True)
        lab = Lab(
            LabSettings(
                home=_HOME, kubeconfig=_KUBECONFIG, embedded=False, control_plane=binaries, nodes=nodes
            )
        )
        try:
            lab.start()
        except ProcessError as error:
            console.print(error, markup=False)
            return 1
        assert lab.process.pid is not None
        started = psutil.Process(lab.process.pid).create_time()
        _STATE.write_text(json.dumps(asdict(_Background(lab.process.pid, started, str(binaries)))))
    console.print(
        f"The cluster runs. ./breeze k8s shell, or: export KUBECONFIG={_KUBECONFIG}", soft_wrap=True
    )
    return 0


def stop() -> int:
    """Stop the cluster, if it runs."""
    background = _Background.find()
    if background is None:
        console.print("No cluster runs.")
        return 0
    lab = psutil.Process(background.pid)
    everything = [*lab.children(recursive=True), lab]
    lab.terminate()
    _, alive = psutil.wait_procs(everything, _STOP_TIMEOUT)
    for process in alive:
        process.kill()
    shutil.rmtree(_HOME, ignore_errors=True)
    console.print("The cluster has been stopped.")
    return 0


def status() -> int:
    """Show the cluster's nodes and pods, if it runs."""
    background = _Background.find()
    if background is None:
        console.print("No cluster runs: ./breeze k8s start")
        return 1
    console.print(f"The cluster runs (process {background.pid}); its files are in {relative(_HOME)}.")
    return run_program(["kubectl", "get", "nodes,pods"], env=background.environment)


def shell() -> int:
    """Run the user's shell, about this cluster."""
    background = _Background.find()
    if background is None:
        console.print("No cluster runs: ./breeze k8s start")
        return 1
    program = os.environ.get("SHELL", "/bin/sh")
    console.print(f"{Path(program).name} with KUBECONFIG={_KUBECONFIG}; exit ends it.", soft_wrap=True)
    return subprocess.run([program], env={**os.environ, **background.environment}, check=False).returncode
