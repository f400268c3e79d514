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

.. seealso:: https://etcd.io/docs/v3.4/op-guide/configuration/
.. seealso:: https://v1-20.docs.kubernetes.io/docs/reference/command-line-tools-reference/
"""

from __future__ import annotations

import contextlib
import secrets
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import httpx

from cluster_lab.kubeconfig import write_kubeconfig
from cluster_lab.managed_process import ManagedProcess, Service, inherited_environment
from cluster_lab.ports import LOOPBACK, free_port

START_TIMEOUT = 180.0
"""Seconds for each program. It takes two or three, but not on a machine with a lot else to do."""

KILL_TIMEOUT = 10.0

CONTROLLERS = ("disruption", "garbagecollector", "namespace", "nodelifecycle", "podgc", "resourcequota")


class ControlPlane(Service):
    """
    The four programs, from entering the ``with`` block to its end.

    Who holds the token may do everything, a service account what RBAC allows it, nobody else anything. Pods
    need no service account. It gives no node up as long as more than half of them are silent: it rather
    doubts its own connection then.

    :param binaries: The folder of the programs.
    :param home: An existing folder for data, certificates and logs.
    :raises ProcessError: On entering, if a program does not become ready.
    """

    def __init__(self, binaries: Path, home: Path) -> None:
        self.token = secrets.token_urlsafe(16)
        """What a client sends to be let in."""
        api_port = free_port()
        self.url = f"https://{LOOPBACK}:{api_port}"
        """The address of the API server."""
        self.etcd_url = f"http://{LOOPBACK}:{free_port()}"
        """The address of etcd, to compact it for example."""
        self.kubeconfig = home / "kubeconfig"
        """A kubeconfig for it, which goes with its files."""
        self._binaries, self._home = binaries, home
        # The API server makes it when it starts, with the certificate of its own authority.
        self._certificate = home / "certificates" / "apiserver.crt"
        self._tokens = home / "tokens.csv"
        self._controllers_port, self._scheduler_port = free_port(), free_port()
        self.etcd = self._process("etcd", self._etcd_options())
        self.apiserver = self._process("kube-apiserver", self._apiserver_options(api_port))
        self.controller_manager = self._process(
            "kube-controller-manager",
            self._client_options(self._controllers_port)
            | {"controllers": ",".join(CONTROLLERS), "node-monitor-period": "1s"},
        )
        self.scheduler = self._process("kube-scheduler", self._client_options(self._scheduler_port))

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for it."""
        write_kubeconfig(path, self.url, token=self.token, certificate=self._certificate)

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
        self._tokens.touch(mode=0o600)
        # A line of token, name, id and group.
        self._tokens.write_text(f"{self.token},lab,lab,system:masters\n")
        self.etcd.start()
        self.etcd.wait_until("it is healthy", partial(_is_healthy, f"{self.etcd_url}/health"), START_TIMEOUT)
        self.start_apiserver()
        self.write_kubeconfig(self.kubeconfig)
        self.controller_manager.start()
        self.scheduler.start()
        for process, port in (
            (self.controller_manager, self._controllers_port),
            (self.scheduler, self._scheduler_port),
        ):
            url = f"http://{LOOPBACK}:{port}/healthz"
            process.wait_until("it is healthy", partial(_is_healthy, url), START_TIMEOUT)

    def _api_is_ready(self) -> bool:
        if not self._certificate.exists():
            return False
        with contextlib.suppress(httpx.TransportError, ssl.SSLError):
            headers = {"Authorization": f"Bearer {self.token}"}
            context = ssl.create_default_context(cafile=self._certificate)
            with httpx.Client(base_url=self.url, headers=headers, verify=context, trust_env=False) as http:
                # The default namespace is made by a loop that the API server starts after it is ready.
                paths = ("/readyz", "/api/v1/namespaces/default")
                return all(http.get(path).is_success for path in paths)
        return False

    def _etcd_options(self) -> dict[str, object]:
        peer = f"http://{LOOPBACK}:{free_port()}"
        return {
            "data-dir": self._home / "etcd",
            "listen-client-urls": self.etcd_url,
            "advertise-client-urls": self.etcd_url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            # Data that is deleted afterwards has nothing to lose in a power cut: no write waits for the disk.
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }

    def _apiserver_options(self, port: int) -> dict[str, object]:
        # Any key will do for the tokens of service accounts.
        key = self._certificate.with_suffix(".key")
        return {
            "etcd-servers": self.etcd_url,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "secure-port": port,
            "cert-dir": self._certificate.parent,
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": self.url,
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "token-auth-file": self._tokens,
            "anonymous-auth": "false",
            "authorization-mode": "RBAC",
            # It would want each pod to have a service account, and a controller to make those.
            "disable-admission-plugins": "ServiceAccount",
            # An address of loopback is refused as an endpoint, every ten seconds.
            "endpoint-reconciler-type": "none",
            "kubelet-preferred-address-types": "InternalIP",
        }

    def _client_options(self, port: int) -> dict[str, object]:
        return {
            "kubeconfig": self.kubeconfig,
            "leader-elect": "false",
            "address": LOOPBACK,
            "port": port,
            "secure-port": 0,
        }

    def _process(self, name: str, options: Mapping[str, object]) -> ManagedProcess:
        command = [str(self._binaries / name), *(f"--{key}={value}" for key, value in options.items())]
        return ManagedProcess(name, command, inherited_environment(), self._home / f"{name}.log")


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False
