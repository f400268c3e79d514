# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Container logs, and the HTTPS server of all nodes of the lab that serves them as a kubelet does."""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trustme
from aiohttp import web

from cluster_lab.http_server import listening


class LogDirectory:
    """The logs of all pods of the lab: one directory for each pod, one file for each container in it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of_pod(self, namespace: str, name: str, uid: str) -> Path:
        """Create and return the directory of a pod."""
        path = self._root / f"{namespace}_{name}_{uid}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def serving(self, address: str) -> AbstractAsyncContextManager[int]:
        """
        Serve the logs on any free port of an address, and yield that port.

        An API server speaks only HTTPS to kubelets, and by default does not ask who signed a certificate.

        .. seealso:: https://kubernetes.io/docs/concepts/architecture/control-plane-node-communication/
        """
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._get)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert(address).configure_cert(context)
        return listening(web.AppRunner(app, access_log=None), address, ssl_context=context)

    async def _get(self, request: web.Request) -> web.Response:
        names = request.match_info
        # "_" is in no Kubernetes name, so the pattern cannot hit the logs of another pod.
        found = self._root.glob(f"{names['namespace']}_{names['pod']}_*/{names['container']}.log")
        newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            text = f'container "{names["container"]}" in pod "{names["pod"]}" is waiting to start'
            return web.Response(status=400, text=text)
        lines = newest.read_bytes().splitlines(keepends=True)
        tail = int(request.query.get("tailLines", len(lines)))
        return web.Response(body=b"".join(lines[max(0, len(lines) - tail) :]), content_type="text/plain")
