# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The log subresource against a kubelet that is not the API server's own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from cluster_lab.conformance import Api, failure
from cluster_lab.kubelet.server import certified


class Kubelet:
    """Answers with one log and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refusal: str | None = None
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if self.refusal:
            return web.Response(status=400, text=self.refusal)
        return web.Response(text="line 1\nline 2\n")

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/containerLogs/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certified("127.0.0.1")).start()
        self.port = runner.addresses[0][1]
        return runner


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    kubelet, loop = Kubelet(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(kubelet.start(), loop).result(10)
    yield kubelet
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _bind_to(api: Api, port: int) -> None:
    endpoints = {"kubeletEndpoint": {"Port": port}}
    addresses = [
        {"type": "Hostname", "address": "nowhere.test"},
        {"type": "InternalIP", "address": "127.0.0.1"},
    ]
    node = api.create_node(status={"addresses": addresses, "daemonEndpoints": endpoints})
    api.create("a")
    api.bind("a", node).raise_for_status()


def test_the_kubelet_of_the_pods_node_is_asked(api: Api, kubelet: Kubelet) -> None:
    _bind_to(api, kubelet.port)

    response = api.http.get(api.path("a", "log"), params={"tailLines": 5, "timestamps": "true"})

    assert (response.status_code, response.text) == (200, "line 1\nline 2\n")
    assert response.headers["Content-Type"] == "text/plain"
    assert kubelet.asked == ["/containerLogs/default/a/base?timestamps=true&tailLines=5"]


def test_a_kubelets_refusal_is_passed_on(api: Api, kubelet: Kubelet) -> None:
    _bind_to(api, kubelet.port)
    kubelet.refusal = 'container "base" in pod "a" is waiting to start: ContainerCreating'

    status = failure(api.http.get(api.path("a", "log")), 400, "BadRequest")

    assert status["message"] == kubelet.refusal


def test_a_kubelet_that_cannot_be_reached_is_an_internal_error(api: Api) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        _bind_to(api, port)

        failure(api.http.get(api.path("a", "log")), 500, "InternalError")


def test_a_node_without_an_address_is_an_internal_error(api: Api) -> None:
    api.create_bound("a")

    failure(api.http.get(api.path("a", "log")), 500, "InternalError")
