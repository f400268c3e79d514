# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Container logs: the API server has none and asks the kubelet of the pod's node, as the real one does.

The kubelet may be in another process: it is found through its Node object, in status.addresses and
status.daemonEndpoints.kubeletEndpoint.Port, and asked at /containerLogs/{namespace}/{pod}/{container}.
"""

from __future__ import annotations

import aiohttp
from aiohttp import web

from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.resources import NODES, PODS
from cluster_lab.apiserver.status import ApiError, internal

_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=5.0)


class LogProxy:
    """The log subresource."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # A real one does not check certificates either, unless it is told whom to trust. A connection
        # kept for the next request would be in the way of a kubelet that stops.
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector)

    async def aclose(self) -> None:
        """Close the connections to kubelets."""
        await self._session.close()

    async def serve(self, info: RequestInfo) -> web.Response:
        """Pass the log on.

        :raises ApiError: 404 for a pod or node that is not there, the kubelet's own refusal, or 500 if it
            cannot be reached.
        """
        pod = self._registry.get(PODS, info.namespace, info.name).obj
        node = pod["spec"].get("nodeName")
        if not node:
            return web.Response(status=204)
        container = info.query.get("container") or pod["spec"]["containers"][0]["name"]
        status = self._registry.get(NODES, "", node).obj["status"]
        address, port = status["addresses"][0], status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        url = f"https://{address['address']}:{port}/containerLogs/{info.namespace}/{info.name}/{container}"
        try:
            async with self._session.get(url, params=info.query) as reply:
                text = await reply.text()
        except aiohttp.ClientConnectionError as error:
            raise internal(f'Get "{url}": {error}') from error
        if reply.status >= 400:
            raise ApiError(reply.status, "BadRequest", text)
        return web.Response(text=text)
