# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The cluster lab as a process: simulated nodes, with an API server of their own or against a given one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGHUP

from cluster_lab.managed_process import ManagedProcess, Service, inherited_environment

READY = "cluster lab ready"
PLAN_READ = "fault plan was read again"
START_TIMEOUT = 180.0
"""In seconds. It takes two, and with a real control plane ten, but not on a machine with a lot else to do."""


@dataclass(frozen=True)
class LabSettings:
    """What one lab differs from another in."""

    home: Path
    """An existing folder for its output, its journal and the logs of the pods."""

    kubeconfig: Path
    """Read by the lab; written if it is embedded or has a control plane of its own."""

    embedded: bool = True
    """Whether the lab is the API server too."""

    control_plane: Path | None = None
    """The programs of a real control plane, for it to be started by the lab, if it is not embedded."""

    plan: Path | None = None
    """The faults to inject, none by default."""

    nodes: int = 3

    worker_env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every worker container, in place of an image's configuration."""

    @property
    def journal(self) -> Path:
        """The file that says what happened to which pod, see :mod:`cluster_lab.journal`."""
        return self.home / "cluster.jsonl"


class Lab(Service):
    """
    The lab process, started on entering the ``with`` block and stopped at its end.

    :raises ProcessError: On entering, if it is not ready after ``START_TIMEOUT`` seconds.
    """

    def __init__(self, settings: LabSettings) -> None:
        self.settings = settings
        log_file = settings.home / "cluster-lab.log"
        self.process = ManagedProcess("cluster-lab", _command(settings), inherited_environment(), log_file)

    def _start(self) -> None:
        self.process.start()
        self.process.wait_until("it is ready", lambda: READY in self.process.tail(), START_TIMEOUT)

    def use(self, faults: Path) -> None:
        """
        Let other faults happen from now on.

        :param faults: a fault plan; the lab was started with one
        """
        assert self.settings.plan is not None
        before = self._plans_read()
        shutil.copy(faults, self.settings.plan)
        self.process.signal(SIGHUP)
        self.process.wait_until("it has read its plan", lambda: self._plans_read() > before, START_TIMEOUT)

    def _plans_read(self) -> int:
        return self.process.log_file.read_text(errors="replace").count(PLAN_READ)

    def stop(self) -> None:
        """Stop it, with its pods."""
        self.process.stop()


def _command(settings: LabSettings) -> list[str]:
    command = [sys.executable, "-m", "cluster_lab", "--nodes", str(settings.nodes)]
    command += ["--kubeconfig", str(settings.kubeconfig), "--journal", str(settings.journal)]
    command += ["--log-dir", str(settings.home / "pods")]
    if settings.embedded:
        command.append("--embedded")
    if settings.control_plane is not None:
        command += ["--control-plane", str(settings.control_plane)]
    if settings.plan is not None:
        command += ["--plan", str(settings.plan)]
    for key, value in settings.worker_env.items():
        command += ["--env", f"{key}={value}"]
    return command
