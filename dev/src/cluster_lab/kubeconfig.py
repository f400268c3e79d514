# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Where the current context of a kubeconfig leads, and how to get in."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import yaml
from kubernetes import client, config


def write_kubeconfig(
    path: Path, server: str, *, token: str | None = None, certificate: Path | None = None
) -> None:
    """
    Write a kubeconfig, readable by its owner only as it may hold a token.

    :param server: the address
    :param certificate: what the server's certificate is checked with
    """
    cluster = {"server": server}
    if certificate:
        cluster["certificate-authority-data"] = base64.b64encode(certificate.read_bytes()).decode()
    loaded = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(loaded))


class Kubeconfig:
    """A kubeconfig, read by the official client, which knows every way to authenticate."""

    def __init__(self, path: Path) -> None:
        self._loaded = client.Configuration()
        config.load_kube_config(str(path), client_configuration=self._loaded)
        self.url: str = self._loaded.host.rstrip("/")

    def headers(self) -> dict[str, str]:
        """Return what a request says about its sender. For each request anew: a token may expire."""
        return {setting["key"]: setting["value"] for setting in self._loaded.auth_settings().values()}

    def tls(self) -> ssl.SSLContext | bool:
        """Return the certificates for an HTTP client; False: it need not know the server."""
        if not self._loaded.verify_ssl:
            return False
        context = ssl.create_default_context(cafile=self._loaded.ssl_ca_cert)
        if self._loaded.cert_file:
            context.load_cert_chain(self._loaded.cert_file, self._loaded.key_file)
        return context
