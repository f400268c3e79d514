# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A real Kubernetes control plane on loopback: etcd, API server, controller manager and scheduler.

The programs come from ``scripts/build_control_plane.py``. It has no nodes: the cluster lab adds them.

.. code-block:: python

    with ControlPlane(binaries, home) as control_plane:
        control_plane.write_kubeconfig(kubeconfig)
        with control_plane.paused():
            ...  # the API server accepts connections and answers nothing
"""

from __future__ import annotations

import contextlib
import secrets
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import httpx

from cluster_lab.control_plane_options import (
    Layout,
    apiserver_options,
    controller_manager_options,
    etcd_options,
    health_url,
    scheduler_options,
)
from cluster_lab.kubeconfig import write_kubeconfig
from cluster_lab.managed_process import ManagedProcess, Service, inherited_environment

START_TIMEOUT = 180.0
"""Seconds for each program. It takes two or three, but not on a machine with a lot else to do."""

KILL_TIMEOUT = 10.0


class ControlPlane(Service):
    """
    The four programs, from entering the ``with`` block to its end.

    Who holds the token may do everything, a service account what RBAC allows it, nobody else anything. Pods
    need no service account.

    :param binaries: The folder of the programs.
    :param home: An existing folder for data, certificates and logs.
    :raises ProcessError: On entering, if a program does not become ready.
    """

    def __init__(self, binaries: Path, home: Path) -> None:
        self.token = secrets.token_urlsafe(16)
        """What a client sends to be let in."""
        self._binaries = binaries
        self._layout = layout = Layout(home)
        self.etcd = self._process("etcd", etcd_options(layout))
        self.apiserver = self._process("kube-apiserver", apiserver_options(layout))
        self.controller_manager = self._process("kube-controller-manager", controller_manager_options(layout))
        self.scheduler = self._process("kube-scheduler", scheduler_options(layout))

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._layout.url

    @property
    def etcd_url(self) -> str:
        """The address of etcd, to compact it for example."""
        return self._layout.etcd_url

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig for it, which goes with its files."""
        return self._layout.kubeconfig

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for it."""
        write_kubeconfig(path, self.url, token=self.token, certificate=self._layout.certificate)

    def start_apiserver(self) -> None:
        """
        Start the API server, again after it was killed, and wait until it is ready.

        :raises ProcessError: If it does not become ready.
        """
        self.apiserver.start()
        self.apiserver.wait_until("its API answers", self._api_is_ready, START_TIMEOUT)

    def kill_apiserver(self) -> None:
        """Kill the API server (SIGKILL): connections to it are refused."""
        self.apiserver.signal(SIGKILL)
        self.apiserver.wait(KILL_TIMEOUT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the API server (SIGSTOP) for a while: connections to it are made, and nothing is answered."""
        self.apiserver.signal(SIGSTOP)
        try:
            yield
        finally:
            self.apiserver.signal(SIGCONT)

    def stop(self) -> None:
        """Stop all programs; without effect on one that does not run."""
        # In the reverse order, so that none complains that another one is gone. Nothing is worth a wait.
        for process in (self.scheduler, self.controller_manager, self.apiserver, self.etcd):
            process.signal(SIGKILL)
            process.stop()

    def _start(self) -> None:
        self._layout.tokens.touch(mode=0o600)
        self._layout.tokens.write_text(f"{self.token},lab,lab,system:masters\n")
        self.etcd.start()
        self.etcd.wait_until("it is healthy", partial(_is_healthy, f"{self.etcd_url}/health"), START_TIMEOUT)
        self.start_apiserver()
        self.write_kubeconfig(self.kubeconfig)
        self.controller_manager.start()
        self.scheduler.start()
        for process, port in (
            (self.controller_manager, self._layout.controllers_port),
            (self.scheduler, self._layout.scheduler_port),
        ):
            process.wait_until("it is healthy", partial(_is_healthy, health_url(port)), START_TIMEOUT)

    def _api_is_ready(self) -> bool:
        if not self._layout.certificate.exists():
            return False
        with contextlib.suppress(httpx.TransportError, ssl.SSLError):
            headers = {"Authorization": f"Bearer {self.token}"}
            context = ssl.create_default_context(cafile=self._layout.certificate)
            with httpx.Client(base_url=self.url, headers=headers, verify=context, trust_env=False) as http:
                # The default namespace is made by a loop that the API server starts after it is ready.
                paths = ("/readyz", "/api/v1/namespaces/default")
                return all(http.get(path).is_success for path in paths)
        return False

    def _process(self, name: str, options: list[str]) -> ManagedProcess:
        command = [str(self._binaries / name), *options]
        return ManagedProcess(name, command, inherited_environment(), self._layout.home / f"{name}.log")


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False
