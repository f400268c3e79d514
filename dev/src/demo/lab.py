# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The cluster lab as a process: simulated nodes, with an API server of their own or against a given one."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster_lab.managed_process import ManagedProcess, inherited_environment

READY = "cluster lab ready"
START_TIMEOUT = 90.0
"""In seconds. It takes two, and with a real control plane ten, but not on a machine with a lot else to do."""


class LabError(RuntimeError):
    """The lab did not come up; the message ends with the last lines of its output."""


@dataclass(frozen=True)
class LabSettings:
    """What one lab differs from another in."""

    home: Path
    """An existing folder for its output, its journal and the logs of the pods."""

    kubeconfig: Path
    """Read by the lab; written if it is embedded or has a control plane of its own."""

    embedded: bool = True
    """Whether the lab is the API server too."""

    cut_watches: float | None = None
    """Every so many seconds the embedded API server breaks off all watches."""

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


class Lab:
    """
    The lab process, started on entering the ``with`` block and stopped at its end.

    :raises LabError: On entering, if it is not ready after ``START_TIMEOUT`` seconds.
    """

    def __init__(self, settings: LabSettings) -> None:
        self.settings = settings
        log_file = settings.home / "cluster-lab.log"
        self.process = ManagedProcess("cluster-lab", _command(settings), inherited_environment(), log_file)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.stop()

    def start(self) -> None:
        """
        Start it and leave it running.

        :raises LabError: If it is not ready after ``START_TIMEOUT`` seconds; then it has been stopped.
        """
        self.process.start()
        try:
            self._wait_until_ready()
        except BaseException:
            self.process.stop()
            raise

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while READY not in self.process.tail():
            if not self.process.running:
                raise LabError(f"the cluster lab ended ({self.process.returncode}):\n{self.process.tail()}")
            if time.monotonic() > deadline:
                raise LabError(f"the cluster lab is not ready:\n{self.process.tail()}")
            time.sleep(0.05)


def _command(settings: LabSettings) -> list[str]:
    command = [sys.executable, "-m", "cluster_lab", "--nodes", str(settings.nodes)]
    command += ["--kubeconfig", str(settings.kubeconfig), "--journal", str(settings.journal)]
    command += ["--log-dir", str(settings.home / "pods")]
    if settings.embedded:
        command.append("--embedded")
        if settings.cut_watches is not None:
            command += ["--cut-watches", str(settings.cut_watches)]
    if settings.control_plane is not None:
        command += ["--control-plane", str(settings.control_plane)]
    if settings.plan is not None:
        command += ["--plan", str(settings.plan)]
    for key, value in settings.worker_env.items():
        command += ["--env", f"{key}={value}"]
    return command
