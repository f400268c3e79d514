# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Plain JSON requests to a Kubernetes API server, with the configuration and authentication of a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

JsonObject = dict[str, Any]

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
"""Merges ``conditions`` by type, so that the kubelet's patches leave those of others alone."""

RETRY_SECONDS = 900.0
"""How long a request is repeated: longer than any outage that is tried. A node that gave up would never be
ready again, and its pods would never say how they ended."""
WATCH_SECONDS = 300
"""A watch ends after this time and the nodes list their pods again, which repairs whatever was missed."""


class ApiError(Exception):
    """An answer of the API server that is not a success."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body[:300]}")
        self.status = status


class KubeClient:
    """Requests and watches on one API server."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: JsonObject | None = None,
        content_type: str = "application/json",
    ) -> JsonObject:
        """
        Send a request and return the decoded answer.

        Connection errors, 429 and 5xx are repeated for :data:`RETRY_SECONDS`, as a kubelet does not give up
        either; the last error is raised.

        :raises ApiError: if the server refuses
        :raises aiohttp.ClientError: if it cannot be reached
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_transient),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            stop=stop_after_delay(RETRY_SECONDS),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with await self._send(method, path, query or {}, body, content_type) as response:
                    answer: JsonObject = json.loads(await response.read())
                    return answer
        raise AssertionError("a retry that neither returns nor raises")

    async def watch(self, path: str, query: Mapping[str, str | int]) -> AsyncIterator[JsonObject]:
        """
        Yield the events of one watch until the server ends it.

        :raises ApiError: if the server refuses
        :raises aiohttp.ClientError: if the connection breaks
        """
        params = {**query, "watch": "true", "timeoutSeconds": WATCH_SECONDS}
        async with await self._send("GET", path, params, None, "application/json") as response:
            async for line in response.content:
                yield json.loads(line)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int],
        body: JsonObject | None,
        content_type: str,
    ) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._api.call_api(
            path,
            method,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            # A server that is gone without closing the connection is noticed at the end of the watch.
            _request_timeout=aiohttp.ClientTimeout(sock_connect=10, sock_read=WATCH_SECONDS + 30),
        )
        if response.status >= HTTPStatus.BAD_REQUEST:
            async with response:
                raise ApiError(response.status, await response.text())
        return response


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ApiError):
        return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= 500
    return isinstance(error, aiohttp.ClientError | TimeoutError)
