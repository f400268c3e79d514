# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One coroutine per verb: HTTP in, HTTP out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from cluster_lab.apiserver.listing import list_page
from cluster_lab.apiserver.logs import LogProxy
from cluster_lab.apiserver.metadata import without_nulls
from cluster_lab.apiserver.patches import apply_patch
from cluster_lab.apiserver.pods import DeleteOptions
from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.resources import Manifest
from cluster_lab.apiserver.status import SUCCESS, ApiError
from cluster_lab.apiserver.watch import WatchStream

Handler = Callable[[web.Request, RequestInfo], Awaitable[web.StreamResponse]]

_JSON = "application/json"
_ONLY_METADATA = "as=PartialObjectMetadataList"
"""In an Accept header: the other representation of a list that this server has.

https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
"""


def json_response(body: bytes | Manifest, status: int = 200) -> web.Response:
    """:returns: a response with a JSON body."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return web.Response(body=data, status=status, content_type=_JSON)


def error_response(error: ApiError) -> web.Response:
    """:returns: the response for a request that failed."""
    if error.page is not None:
        return web.Response(status=error.code, text=error.page, content_type="text/html")
    response = json_response(error.status(), error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


class Handlers:
    """The verbs of the API."""

    def __init__(self, registry: Registry, logs: LogProxy, bookmark_interval: float) -> None:
        self._registry = registry
        self._logs = logs
        self._bookmark_interval = bookmark_interval
        self._by_name: dict[str, Handler] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "patch": self._patch,
            "delete": self._delete,
            "binding": self._bind,
            "eviction": self._evict,
            "log": self._log,
        }

    async def handle(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        """Answer a request.

        :raises ApiError: it failed.
        """
        # A status has no handler of its own.
        handler = self._by_name.get(info.subresource) or self._by_name[info.verb]
        return await handler(request, info)

    async def _get(self, _request: web.Request, info: RequestInfo) -> web.StreamResponse:
        return json_response(self._registry.get(info.target, info.namespace, info.name).json)

    async def _list(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        only_metadata = _ONLY_METADATA in request.headers.get("Accept", "")
        return json_response(list_page(self._registry.store, info, only_metadata=only_metadata))

    async def _watch(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        return await WatchStream(self._registry.store, info, self._bookmark_interval).serve(request)

    async def _create(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        body = await _object_body(request)
        record = self._registry.create(info.target, info.namespace, body)
        return json_response(record.json, 201)

    async def _patch(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        patch = msgspec.json.decode(await request.read())
        content_type = request.content_type

        def edit(current: Manifest) -> Manifest:
            patched: Manifest = without_nulls(apply_patch(content_type, current, patch))
            return patched

        record = self._registry.update(info.target, info.namespace, info.name, edit, info.subresource)
        return json_response(record.json)

    async def _delete(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        options = await _delete_options(request)
        gone = self._registry.delete(info.target, info.namespace, info.name, options)
        return json_response(gone.json)

    async def _bind(self, request: web.Request, info: RequestInfo) -> web.StreamResponse:
        self._registry.bind(info.namespace, info.name, await _object_body(request))
        return json_response(SUCCESS, 201)

    async def _evict(self, _request: web.Request, info: RequestInfo) -> web.StreamResponse:
        self._registry.delete(info.target, info.namespace, info.name, DeleteOptions())
        return json_response(SUCCESS, 201)

    async def _log(self, _request: web.Request, info: RequestInfo) -> web.StreamResponse:
        return await self._logs.serve(info)


async def _object_body(request: web.Request) -> Manifest:
    body: Manifest = without_nulls(msgspec.json.decode(await request.read()))
    return body


async def _delete_options(request: web.Request) -> DeleteOptions:
    """The query counts only if there is no body, as with a real server."""
    data = await request.read()
    return DeleteOptions.parse(await _object_body(request) if data else dict(request.query))
