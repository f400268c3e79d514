# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""By which way requests reach the API server: looked up once, as the environment says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from kubernetes_asyncio.client import ApiClient, Configuration

from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import JsonTransport, fix_proxy

API_SERVER = "http://api.example"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Give the address of a server that says for which host it was asked, and know no proxy."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    async def answer(request: web.Request) -> web.Response:
        # Not the host of its URL, which aiohttp before 3.14 cannot tell with a newer yarl.
        host = request.host.partition(":")[0]
        return web.json_response({"host": host, "user": request.headers.get("Authorization")})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    # Not the site's name: its port is the 0 asked for, before aiohttp 3.14.
    host, port = runner.addresses[0]
    yield f"http://{host}:{port}"
    await runner.cleanup()


async def asked(host: str, proxy: str | None = None) -> Any:
    configuration = Configuration(host=host)
    configuration.proxy = proxy
    async with ApiClient(configuration) as client:
        fix_proxy(client)
        return await JsonTransport(client).request("GET", "/api/v1/pods", {})


async def test_no_request_needs_another_thread(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a thread for each request, beside the scheduler's, is slow")

    configuration = Configuration(host=server)
    async with ApiClient(configuration) as client:
        fix_proxy(client)
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
        assert (await JsonTransport(client).request("GET", "/", {}))["host"] == "127.0.0.1"


async def test_proxy_of_the_environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server)
    assert (await asked(API_SERVER))["host"] == "api.example"


async def test_proxy_that_is_configured_comes_first(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert (await asked(API_SERVER, proxy=server))["host"] == "api.example"


async def test_proxy_that_is_not_for_this_host(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert (await asked(server))["host"] == "127.0.0.1"


async def test_netrc_is_not_read(server: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (await asked(server))["user"] is None
