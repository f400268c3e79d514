# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server behind the proxy, and how requests and replies are passed on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict
from yarl import URL

from cluster_lab.client import LONGEST_LINE
from cluster_lab.kubeconfig import Kubeconfig

_OF_ONE_CONNECTION = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
"""https://www.rfc-editor.org/rfc/rfc9110.html#section-7.6.1"""
_MADE_ANEW = {"content-length", "expect", "host"}
_NOT_ADDED = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)


class Upstream:
    """The server that a kubeconfig names. To be made on the event loop that uses it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._config = Kubeconfig(kubeconfig)
        self._connector = aiohttp.TCPConnector(limit=0, ssl=self._config.tls())
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            # A server that is stopped lets its clients wait; when to give up is for them to say.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NOT_ADDED,
            read_bufsize=LONGEST_LINE,
        )

    async def aclose(self) -> None:
        """Break all connections."""
        await self._connector.close(abort_ssl=True)
        await self._session.close()

    @asynccontextmanager
    async def send(
        self, request: web.Request, body: bytes, extra: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Pass a request on.

        :param extra: headers that replace those of the request.
        :raises aiohttp.ClientError: the server is not there, or breaks the connection.
        """
        headers = _passed_on(request.headers, _MADE_ANEW)
        if hdrs.AUTHORIZATION not in headers:
            headers.update(self._config.headers())
        headers.update(extra)
        async with self._session.request(
            request.method,
            URL(self._config.url + request.raw_path, encoded=True),
            data=BytesIO(body) if body else None,
            headers=headers,
            allow_redirects=False,
        ) as reply:
            yield reply


def _passed_on(headers: Mapping[str, str], dropped: set[str]) -> CIMultiDict[str]:
    without = _OF_ONE_CONNECTION | dropped
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in without)


async def begin(request: web.Request, reply: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass status and headers of a reply on.

    :returns: the response, to which the body can be written.
    """
    headers = _passed_on(reply.headers, set())
    response = web.StreamResponse(status=reply.status, reason=reply.reason, headers=headers)
    await response.prepare(request)
    return response


async def relay(request: web.Request, reply: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass a reply on as it comes.

    :raises aiohttp.ClientError: it breaks off.
    """
    response = await begin(request, reply)
    async for chunk in reply.content.iter_any():
        await response.write(chunk)
    return response
