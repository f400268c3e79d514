# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A kubelet's HTTPS server, for all nodes of the lab.

An API server speaks nothing else to kubelets, and by default does not ask who signed their certificates.

.. seealso:: https://kubernetes.io/docs/concepts/architecture/control-plane-node-communication/
"""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager

import trustme
from aiohttp import web

from cluster_lab.http_server import listening


def certified(address: str) -> ssl.SSLContext:
    """Return a server's TLS context with a new certificate for this address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert(address).configure_cert(context)
    return context


def serving(application: web.Application, address: str) -> AbstractAsyncContextManager[int]:
    """Serve on any free port of an address, and yield that port."""
    runner = web.AppRunner(application, access_log=None)
    return listening(runner, address, ssl_context=certified(address))
