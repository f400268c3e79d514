# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
JSON over the HTTP session of a ``kubernetes_asyncio`` client.

The client provides address, authentication, token refresh and TLS. The client's model objects are not used:
building them takes several times as long as the rest of a watch event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    ForeignAnswerError,
    KubernetesApiError,
    error_from_status,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.projection import EVERYTHING, Decoder, decode
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import REAL, Timing

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientTimeout

logger = logging.getLogger(__name__)

Json = dict[str, Any]
RequestTimeout = float | tuple[float, float]
"""Seconds in total, or (to connect, between two reads), as ``_request_timeout`` of the Kubernetes clients."""

DEFAULT_REQUEST_TIMEOUT = 60.0
"""Seconds, if no total is configured. Without a limit, a request never ends on a half-open connection, nor if
its answer drips."""

ANSWER_TIMEOUT = 90.0
"""Seconds within which an answer has to begin, whatever is configured."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_Call = Callable[[Any], Awaitable["ClientResponse"]]

UNAUTHORIZED = 401

RENEWAL_INTERVAL = 10.0
"""Seconds between two attempts to make a new client."""

RENEW_AFTER = 3
"""Consecutive requests without an answer. A new client is made then: the API server may have moved."""

CONNECT_TIMEOUT = 30.0
"""Seconds to connect a stream. A stream has no limit in total."""


class JsonTransport:
    """
    Sends requests and decodes answers. Bound to the event loop that it was made in.

    :param api_client: a ``kubernetes_asyncio.client.ApiClient``
    :param request_timeout: limit of each request that is not a stream
    :param renew: makes a new client from the current configuration, when this one may be out of date.
        Credentials of a plug-in (``exec`` in a kubeconfig) expire, certificate authorities are replaced, and
        an API server moves. A client reads all of these only when it is made.
    """

    def __init__(
        self,
        api_client: Any,
        request_timeout: RequestTimeout | None = None,
        *,
        renew: Callable[[], Awaitable[Any]] | None = None,
        timing: Timing = REAL,
    ) -> None:
        self._client = _Client(api_client)
        self._former: set[_Client] = set()
        self._limit = _client_timeout(request_timeout or DEFAULT_REQUEST_TIMEOUT)
        self._make_client = renew
        self._renewing = asyncio.Lock()
        self._renewed_at = float("-inf")
        self._renewal_failed = False
        self._unanswered = 0
        self._timing = timing

    async def close(self) -> None:
        """Close all connections."""
        for client in (self._client, *self._former):
            await client.api.close()

    async def request(
        self,
        method: str,
        path: str,
        path_params: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        decoder: Decoder = EVERYTHING,
    ) -> Json:
        """
        Send a request and return the decoded answer.

        :param path: with ``{placeholders}`` for ``path_params``
        :param accept: form of the answer
        :param decoder: selects the fields to decode
        :raises KubernetesApiError: if there is no answer, or it is not a success
        """
        headers = {"Accept": accept, "Content-Type": content_type}
        call = _call(method, path, path_params, query, headers, self._limit, body)
        async with self._send(call) as response:
            if not 200 <= response.status < 300:
                raise await _refusal(response)
            return _decode(await _read(response), decoder)

    async def stream(
        self,
        path: str,
        path_params: Mapping[str, str],
        *,
        query: Mapping[str, str],
        inactivity_timeout: float,
        decoder: Decoder = EVERYTHING,
    ) -> AsyncGenerator[Json]:
        """
        Yield the objects of an answer with one JSON object per line, until the server ends it.

        :param decoder: selects the fields to decode
        :param inactivity_timeout: seconds without a byte after which the stream counts as dead
        :raises KubernetesApiError: if it is refused, breaks off or is silent for too long
        """
        limit = _client_timeout((CONNECT_TIMEOUT, inactivity_timeout), is_stream=True)
        lines = LineSplitter()
        call = _call("GET", path, path_params, query, {"Accept": "application/json"}, limit)
        async with self._send(call) as response:
            if response.status != 200:
                raise await _refusal(response)
            while chunk := await _read_some(response):
                for line in lines.feed(chunk):
                    yield _decode(line, decoder)
        if lines.incomplete:
            raise ConnectionFailedError("the stream ended within an event")

    @asynccontextmanager
    async def _send(self, call: _Call) -> AsyncGenerator[ClientResponse]:
        async with self._in_use() as client:
            response = await self._first_answer(client, call)
            if response is not None:
                async with response:
                    yield response
                return
        async with self._in_use() as client, await self._answer(client, call) as response:
            yield response

    @asynccontextmanager
    async def _in_use(self) -> AsyncGenerator[_Client]:
        """Keep the current client open while a request uses its connections."""
        client = self._client
        client.requests += 1
        try:
            yield client
        finally:
            client.requests -= 1
            if client in self._former and not client.requests:
                self._former.discard(client)
                await client.api.close()

    async def _first_answer(self, client: _Client, call: _Call) -> ClientResponse | None:
        """Return the answer to a request; None if it has to be sent again with the new client."""
        try:
            response = await self._answer(client, call)
        except ConnectionFailedError as error:
            if self._may_be_out_of_date(error) and await self._renewed(client) and _was_not_sent(error):
                return None
            raise
        if response.status == UNAUTHORIZED and await self._renewed(client):
            response.release()
            return None
        return response

    async def _answer(self, client: _Client, call: _Call) -> ClientResponse:
        try:
            # aiohttp's own limits do not cover a proxy that accepts the connection and then is silent.
            async with asyncio.timeout(ANSWER_TIMEOUT):
                response = await call(client.api)
        except Exception as error:
            # Not only connection errors: credential plug-ins run in here, and raise anything. An unexpected
            # exception would end the command, and it would be lost.
            self._unanswered += 1
            raise _connection_failed(error) from error
        self._unanswered = 0
        return response

    def _may_be_out_of_date(self, error: ConnectionFailedError) -> bool:
        from aiohttp import ClientSSLError  # noqa: PLC0415

        return isinstance(error.__cause__, ClientSSLError) or self._unanswered >= RENEW_AFTER

    async def _renewed(self, used: _Client) -> bool:
        """Make a new client if the used one is still current; return whether there is a new one now."""
        async with self._renewing:
            is_due = self._timing.clock() - self._renewed_at >= RENEWAL_INTERVAL
            if self._client is used and self._make_client is not None and is_due:
                await self._renew(self._make_client)
                self._renewed_at = self._timing.clock()
            return self._client is not used

    async def _renew(self, make_client: Callable[[], Awaitable[Any]]) -> None:
        try:
            api = await make_client()
        except Exception as error:  # noqa: BLE001 - a plug-in or a factory raises anything
            # The old client did not work a moment ago, but may work again.
            level = logging.DEBUG if self._renewal_failed else logging.WARNING
            logger.log(level, "No other Kubernetes client could be made; this one stays in use: %s", error)
            self._renewal_failed = True
            return
        self._renewal_failed, self._unanswered = False, 0
        if api is not self._client.api:  # a factory may keep a client that renews itself
            self._former.add(self._client)
            self._client = _Client(api)


class _Client:
    """A client, and the number of requests that use its connections."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.requests = 0


def fix_proxy(api_client: Any) -> None:
    """
    Look up the proxy of the API server once, and ignore ``.netrc``.

    aiohttp would read both for each request, in another thread. While the scheduler's thread computes, each
    such detour takes twice the interpreter's switch interval.

    :param api_client: a ``kubernetes_asyncio.client.ApiClient``

    .. seealso:: https://docs.aiohttp.org/en/stable/client_advanced.html#proxy-support
    """
    rest = api_client.rest_client
    if rest.pool_manager.trust_env:
        address = urlsplit(api_client.configuration.host)
        if not (rest.proxy or proxy_bypass(address.hostname or "")):
            rest.proxy = getproxies().get(address.scheme)
        rest.pool_manager._trust_env = False


class LineSplitter:
    """
    Finds the lines in a stream of chunks.

    aiohttp's own line reader refuses lines longer than its buffer. A pod may be longer.
    """

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    @property
    def incomplete(self) -> bool:
        """Whether a line has begun, but not ended."""
        return bool(self._begun)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that this chunk completes. Empty lines are skipped."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if line := b"".join((*self._begun, end)).strip():
                yield line
            self._begun.clear()
        if rest:
            self._begun.append(rest)


def _call(
    method: str,
    path: str,
    path_params: Mapping[str, str],
    query: Mapping[str, str] | None,
    headers: Mapping[str, str],
    limit: ClientTimeout,
    body: Any = None,
) -> _Call:
    return lambda api: api.call_api(
        path,
        method,
        path_params=dict(path_params),
        query_params=list((query or {}).items()),
        # Within a cluster, the API server takes longer to compress a list than to send it. Kubernetes'
        # controllers and scheduler do not ask for compression either.
        header_params={"Accept-Encoding": "identity", **headers},
        body=body,
        auth_settings=["BearerToken"],
        _preload_content=False,
        _request_timeout=limit,
    )


def _client_timeout(timeout: RequestTimeout, *, is_stream: bool = False) -> ClientTimeout:
    from aiohttp import ClientTimeout  # noqa: PLC0415

    if isinstance(timeout, tuple):
        connect, read = timeout
        # "sock_connect", not "connect": the latter includes the wait for a free connection of the pool, and
        # would turn a burst of requests into timeouts.
        total = None if is_stream else max(DEFAULT_REQUEST_TIMEOUT, connect + read)
        return ClientTimeout(total=total, sock_connect=connect, sock_read=read)
    return ClientTimeout(total=timeout)


def _connection_failed(error: Exception) -> ConnectionFailedError:
    return ConnectionFailedError(f"{type(error).__name__}: {error}".removesuffix(": "))


def _was_not_sent(error: ConnectionFailedError) -> bool:
    from aiohttp import ClientConnectorError  # noqa: PLC0415

    return isinstance(error.__cause__, ClientConnectorError)


async def _read(response: ClientResponse) -> bytes:
    try:
        return await response.read()
    except Exception as error:
        raise _connection_failed(error) from error


async def _read_some(response: ClientResponse) -> bytes:
    try:
        return await response.content.readany()
    except Exception as error:
        raise _connection_failed(error) from error


async def _refusal(response: ClientResponse) -> KubernetesApiError:
    data = await _read(response)
    try:
        body = msgspec.json.decode(data)
    except _UNREADABLE:
        body = None  # the page of a proxy
    text = data.decode(errors="replace")
    return error_from_status(response.status, body, text=text, headers=response.headers)


def _decode(data: bytes, decoder: Decoder) -> Json:
    try:
        return decode(data, decoder)
    except _UNREADABLE as error:
        raise ForeignAnswerError(f"unreadable answer: {error}") from error
