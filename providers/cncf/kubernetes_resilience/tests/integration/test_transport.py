# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What arrives when the other end is a proxy, half an answer, or a broken credential plug-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration

from airflow.providers.cncf.kubernetes_resilience.pods.api.client import PodClient
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    ForeignAnswerError,
    KubernetesApiError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import JsonTransport, RequestTimeout

from ..support.waiting import WAIT

LINE = b'{"type":"BOOKMARK","object":{}}\n'


def answer(status: str, body: bytes, *, length: int | None = None, extra: str = "") -> bytes:
    length = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{extra}\r\n"
    return head.encode() + body


def until_closed(body: bytes) -> bytes:
    return b"HTTP/1.0 200 OK\r\n\r\n" + body


@asynccontextmanager
async def served(*answers: bytes, hook: Callable[..., Any] | None = None) -> AsyncIterator[PodClient]:
    """A client of a server that gives these bytes, one after the other, whatever is asked."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0))
        await writer.drain()
        writer.close()

    async with connected(serve, hook) as client:
        yield client


@asynccontextmanager
async def connected(
    serve: Callable[..., Awaitable[None]],
    hook: Callable[..., Any] | None = None,
    limit: RequestTimeout | None = None,
) -> AsyncIterator[PodClient]:
    """A client of a server that treats its connections in some way."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        configuration = Configuration(host=f"http://127.0.0.1:{port}", api_key={"BearerToken": "x"})
        configuration.refresh_api_key_hook = hook
        client = PodClient(JsonTransport(ApiClient(configuration), limit))
        try:
            yield client
        finally:
            await client.close()


async def watch(client: PodClient) -> list[Any]:
    events = client.watch_pods(
        None, label_selector="", resource_version="1", timeout_seconds=1, inactivity_timeout=WAIT
    )
    return [event async for event in events]


async def test_page_of_a_proxy() -> None:
    page = answer("502 Bad Gateway", b"<html>upstream is away</html>", extra="Retry-After: 3\r\n")
    async with served(page) as client:
        with pytest.raises(KubernetesApiError, match="upstream is away") as caught:
            await client.get_pod("ns", "p")
    assert (caught.value.status, caught.value.retry_after, caught.value.transient) == (502, 3.0, True)


@pytest.mark.parametrize(
    ("data", "class_"),
    [
        (answer("200 OK", b"<html>please log in</html>"), ForeignAnswerError),
        (answer("200 OK", b"[]"), ForeignAnswerError),
        (answer("200 OK", b"\xff\xfe"), ForeignAnswerError),
        (answer("200 OK", b'{"kind":', length=500), ConnectionFailedError),
        (answer("503 Service Unavailable", b'{"kind":', length=500), ConnectionFailedError),
        (b"", ConnectionFailedError),
    ],
    ids=["html", "list", "not-utf8", "cut-off", "refusal-cut-off", "nothing"],
)
async def test_answer_of_no_use(data: bytes, class_: type[ConnectionFailedError]) -> None:
    async with served(data, data) as client:
        with pytest.raises(ConnectionFailedError) as caught:
            await client.get_pod("ns", "p")
    assert type(caught.value) is class_


@pytest.mark.parametrize(("limit", "total"), [(None, 60), (70.0, 70), ((5.0, 30.0), 60), ((30.0, 60.0), 90)])
async def test_answer_that_drips(
    monkeypatch: pytest.MonkeyPatch, limit: RequestTimeout | None, total: float
) -> None:
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("200 OK", b"", length=10_000))
        while now < 2 * total and not writer.is_closing():
            writer.write(b" ")
            now += 1
            await asyncio.sleep(0)
        writer.close()

    async with connected(serve, limit=limit) as client:
        with pytest.raises(ConnectionFailedError, match="Timeout"):
            await client.get_pod("ns", "p")
    assert now == pytest.approx(total, abs=5)


@pytest.mark.parametrize(
    "data",
    [
        until_closed(b'{"type":"ADDED","object":{}}\n{"type":"ADD'),
        until_closed(b'{"type":"ADDED","object":{}}\nnonsense\n'),
        answer("200 OK", b'{"type":"ADDED","object":{}}\n', length=500),
    ],
    ids=["within-an-event", "nonsense", "connection-lost"],
)
async def test_watch_that_breaks_off(data: bytes) -> None:
    async with served(data) as client:
        with pytest.raises(ConnectionFailedError):
            await watch(client)


async def test_silence_ends_a_watch_and_each_line_begins_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = 0.0
    monkeypatch.setattr(loop, "time", lambda: now)
    limit = 100.0
    say: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(until_closed(b""))
        while line := await say.get():
            writer.write(line)
        writer.close()

    async with (
        connected(serve) as client,
        aclosing(
            client.watch_pods(
                None, label_selector="", resource_version="1", timeout_seconds=1, inactivity_timeout=limit
            )
        ) as events,
    ):
        for _ in range(5):
            say.put_nowait(LINE)
            assert (await anext(events)).type == "BOOKMARK"
            now += limit - 1
        ending = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not ending.done()
        now += 1
        with pytest.raises(ConnectionFailedError, match="Timeout"):
            await ending
        say.put_nowait(b"")


async def test_watch_that_is_refused() -> None:
    async with served(answer("410 Gone", b'{"kind":"Status","reason":"Expired","message":"old"}')) as client:
        with pytest.raises(KubernetesApiError, match="410 Expired: old"):
            await watch(client)


async def test_watch_that_ends() -> None:
    async with served(until_closed(b'{"type":"ADDED","object":{}}\n')) as client:
        assert [event.type for event in await watch(client)] == ["ADDED"]


async def test_credential_plugin_that_fails() -> None:
    async def hook(_: Any) -> None:
        raise LookupError("the plug-in is not installed")

    async with served(hook=hook) as client:
        with pytest.raises(
            ConnectionFailedError, match="LookupError: the plug-in is not installed"
        ) as caught:
            await client.get_pod("ns", "p")
    assert isinstance(caught.value.__cause__, LookupError)
