# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The cluster lab as a process: simulated nodes, with an API server of their own or against a given one."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from signal import SIGHUP

from cluster_lab.managed_process import ManagedProcess, Service, inherited_environment

READY = "cluster lab ready"
PLAN_READ = "fault plan was read again"
START_TIMEOUT = 180.0
"""In seconds. It takes two, but not on a machine with a lot else to do."""


class Lab(Service):
    """
    The lab process, started on entering the ``with`` block and stopped at its end.

    :param home: An existing folder for its output, its journal and the logs of the pods.
    :param kubeconfig: Read by the lab; written if it is embedded.
    :param embedded: Whether the lab is the API server too.
    :param plan: The faults to inject.
    :param worker_env: Environment of every worker container, in place of an image's configuration.
    :raises ProcessError: On entering, if it is not ready after ``START_TIMEOUT`` seconds.
    """

    def __init__(
        self,
        home: Path,
        kubeconfig: Path,
        *,
        embedded: bool,
        plan: Path,
        nodes: int,
        worker_env: Mapping[str, str],
    ) -> None:
        self.kubeconfig = kubeconfig
        self.journal = home / "cluster.jsonl"
        """The file that says what happened to which pod, see :mod:`cluster_lab.journal`."""
        self._plan = plan
        options = {
            "kubeconfig": kubeconfig,
            "embedded": embedded,
            "plan": plan,
            "nodes": nodes,
            "env": worker_env,
            "journal": self.journal,
            "log_dir": home / "pods",
        }
        command = [sys.executable, "-m", "cluster_lab", json.dumps(options, default=str)]
        log_file = home / "cluster-lab.log"
        self.process = ManagedProcess("cluster-lab", command, inherited_environment(), log_file)

    def _start(self) -> None:
        self.process.start()
        self.process.wait_until("it is ready", lambda: READY in self.process.tail(), START_TIMEOUT)

    def use(self, faults: Path) -> None:
        """
        Let other faults happen from now on.

        :param faults: a fault plan
        """
        before = self._plans_read()
        shutil.copy(faults, self._plan)
        self.process.signal(SIGHUP)
        self.process.wait_until("it has read its plan", lambda: self._plans_read() > before, START_TIMEOUT)

    def _plans_read(self) -> int:
        return self.process.log_file.read_text(errors="replace").count(PLAN_READ)

    def stop(self) -> None:
        """Stop it, with its pods."""
        self.process.stop()
