# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Container logs: the API server has none and asks the kubelet of the pod's node, as the real one does.

The kubelet may be in another process: it is found through its Node object, in status.addresses and
status.daemonEndpoints.kubeletEndpoint.Port, and asked at /containerLogs/{namespace}/{pod}/{container}.
"""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
from aiohttp import web

from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.resources import NODES, PODS, Manifest
from cluster_lab.apiserver.status import ApiError, bad_request, internal

_OPTIONS = ("follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes")
_ADDRESS_ORDER = ("InternalIP", "ExternalIP", "Hostname")
_CONNECT_TIMEOUT = 5.0
"""Seconds. There is no limit on the whole: a log that is followed ends with its container."""
_CODES = {400: "BadRequest", 404: "NotFound", 500: "InternalError"}


class LogProxy:
    """The log subresource."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_TIMEOUT)
        # A real one does not check certificates either, unless it is told whom to trust. A connection
        # kept for the next request would be in the way of a kubelet that stops.
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)

    async def close(self) -> None:
        """Close the connections to kubelets."""
        await self._session.close()

    async def serve(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        """Pass the log on as it comes.

        :raises ApiError: 400 for an unknown container, 404 for a pod or node that is not there, the kubelet's
            own refusal, or 500 if it cannot be reached.
        """
        pod = self._registry.get(PODS, info.namespace, info.name).obj
        container = _container(pod, info.query.get("container", ""))
        node = pod["spec"].get("nodeName")
        if not node:
            return web.Response(status=204)
        url = _kubelet(self._registry.get(NODES, "", node).obj)
        url += f"/containerLogs/{info.namespace}/{info.name}/{container}"
        try:
            async with self._session.get(url, params=_options(info.query)) as reply:
                return await _relay(request, reply, pod["metadata"]["name"])
        except aiohttp.ClientConnectionError as error:
            raise internal(f'Get "{url}": {error}') from error


async def _relay(request: web.Request, reply: aiohttp.ClientResponse, pod: str) -> web.StreamResponse:
    if reply.status >= 400:
        text = (await reply.text()).strip()
        details = {"name": pod, "kind": "pods"}
        raise ApiError(reply.status, _CODES.get(reply.status, "Unknown"), text or str(reply.reason), details)
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    async for chunk in reply.content.iter_any():
        await response.write(chunk)
    return response


def _container(pod: Manifest, wanted: str) -> str:
    names = [c["name"] for field in ("initContainers", "containers") for c in pod["spec"].get(field, [])]
    name = pod["metadata"]["name"]
    if wanted:
        if wanted not in names:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(pod["spec"]["containers"]) > 1:
        choice = f"[{' '.join(names)}]"
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: {choice}")
    return str(pod["spec"]["containers"][0]["name"])


def _kubelet(node: Manifest) -> str:
    by_type = {address["type"]: address["address"] for address in node["status"].get("addresses", [])}
    host = next((by_type[kind] for kind in _ADDRESS_ORDER if kind in by_type), None)
    port = node["status"].get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
    if host is None or not port:
        raise internal(f"no preferred addresses found for node {node['metadata']['name']}")
    return f"https://{host}:{port}"


def _options(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query[name] for name in _OPTIONS if name in query}
