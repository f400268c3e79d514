# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The files, ports and command lines of the programs of :mod:`cluster_lab.control_plane`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cluster_lab.ports import LOOPBACK, free_port

CONTROLLERS = ("disruption", "garbagecollector", "namespace", "nodelifecycle", "podgc", "resourcequota")


@dataclass(frozen=True)
class Layout:
    """Where the programs of one control plane keep their files, and listen."""

    home: Path
    etcd_port: int = field(default_factory=free_port)
    peer_port: int = field(default_factory=free_port)
    api_port: int = field(default_factory=free_port)
    controllers_port: int = field(default_factory=free_port)
    scheduler_port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """The address of the API server."""
        return f"https://{LOOPBACK}:{self.api_port}"

    @property
    def etcd_url(self) -> str:
        """The address of etcd."""
        return f"http://{LOOPBACK}:{self.etcd_port}"

    @property
    def certificate(self) -> Path:
        """What the API server makes itself when it starts, with the certificate of its own authority."""
        return self.home / "certificates" / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        """Who is let in: a line of token, name, id and group for each."""
        return self.home / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        """How the other programs reach the API server."""
        return self.home / "kubeconfig"


def etcd_options(layout: Layout) -> list[str]:
    """Give the options of etcd.

    .. seealso:: https://etcd.io/docs/v3.4/op-guide/configuration/
    """
    peer = f"http://{LOOPBACK}:{layout.peer_port}"
    return [
        f"--data-dir={layout.home / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # Data that is deleted afterwards has nothing to lose in a power cut: no write waits for the disk.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_options(layout: Layout) -> list[str]:
    """Give the options of kube-apiserver.

    .. seealso:: https://v1-20.docs.kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/
    """
    # Any key will do for the tokens of service accounts.
    key = layout.certificate.with_suffix(".key")
    return [
        f"--etcd-servers={layout.etcd_url}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={layout.api_port}",
        f"--cert-dir={layout.certificate.parent}",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--service-account-issuer={layout.url}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--token-auth-file={layout.tokens}",
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        # It would want each pod to have a service account, and a controller to make those.
        "--disable-admission-plugins=ServiceAccount",
        # An address of loopback is refused as an endpoint, every ten seconds.
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_manager_options(layout: Layout) -> list[str]:
    """Give the options of kube-controller-manager.

    .. seealso:: https://v1-20.docs.kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/
    """
    return [
        *_client_options(layout, layout.controllers_port),
        f"--controllers={','.join(CONTROLLERS)}",
        "--node-monitor-period=1s",
    ]


def scheduler_options(layout: Layout) -> list[str]:
    """Give the options of kube-scheduler.

    .. seealso:: https://v1-20.docs.kubernetes.io/docs/reference/command-line-tools-reference/kube-scheduler/
    """
    return _client_options(layout, layout.scheduler_port)


def health_url(port: int) -> str:
    """Where a program that is not the API server tells whether it is well."""
    return f"http://{LOOPBACK}:{port}/healthz"


def _client_options(layout: Layout, port: int) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        f"--address={LOOPBACK}",
        f"--port={port}",
        "--secure-port=0",
    ]
