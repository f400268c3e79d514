# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes client of the lab, the tests and the benchmarks: plain JSON, on one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from cluster_lab.kubeconfig import Kubeconfig

JsonObject = dict[str, Any]
Query = Mapping[str, str | int]

JSON = "application/json"

WATCH_SECONDS = 300
"""A watch ends after this time, if nothing else is said, and its user lists anew, which repairs what was
missed."""

LONGEST_LINE = 2**21
"""Bytes. An API server takes no larger object, and a watch has one in each line."""
# A server that is gone without closing the connection is noticed at the end of the watch.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SECONDS + 30)


class ApiError(Exception):
    """An answer of the API server that is not a success."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body[:300]}")
        self.status = status


class KubeClient:
    """
    Requests and watches on one API server. To be made, used and closed on one event loop.

    :param patience: Seconds for which :meth:`request` is repeated.
    """

    def __init__(self, kubeconfig: Path, patience: float) -> None:
        self._config = Kubeconfig(kubeconfig)
        self._patience = patience
        self._session = aiohttp.ClientSession(
            # Each watch holds a connection, and there is one for each node.
            connector=aiohttp.TCPConnector(ssl=self._config.tls(), limit=0),
            timeout=_TIMEOUT,
            read_bufsize=LONGEST_LINE,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, **options: Any) -> JsonObject:
        """
        Send a request and return the decoded answer.

        Connection errors, 429 and 5xx are repeated; the last error is raised.

        :param options: of :meth:`send`
        :raises ApiError: if the server refuses
        :raises aiohttp.ClientError: if it cannot be reached
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_transient),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            stop=stop_after_delay(self._patience),
            reraise=True,
        )
        answer: bytes = await retrying(self.send, method, path, **options)
        return msgspec.json.decode(answer, type=JsonObject)

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: JsonObject | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """
        Send a request once and return the answer.

        :raises ApiError: if the server refuses
        :raises aiohttp.ClientError: if it cannot be reached
        """
        headers = {**self._config.headers(), "Accept": JSON, "Content-Type": content_type}
        data = None if body is None else msgspec.json.encode(body)
        async with self._session.request(
            method, self._config.url + path, params=query, data=data, headers=headers
        ) as answer:
            await _check(answer)
            return await answer.read()

    async def watch(self, path: str, query: Query) -> AsyncIterator[JsonObject]:
        """
        Yield the events of one watch until the server ends it.

        :raises ApiError: if the server refuses
        :raises aiohttp.ClientError: if the connection breaks
        """
        params = {"watch": "true", "timeoutSeconds": WATCH_SECONDS, **query}
        async with self._session.get(
            self._config.url + path, params=params, headers=self._config.headers()
        ) as answer:
            await _check(answer)
            async for line in answer.content:
                yield msgspec.json.decode(line, type=JsonObject)


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise ApiError(answer.status, await answer.text())


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ApiError):
        return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= 500
    return isinstance(error, aiohttp.ClientError | TimeoutError)
