# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An API server that gets other certificates, and another address, while a client is in use."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from airflow.providers.cncf.kubernetes_resilience.pods.api.api_clients import ApiClients
from airflow.providers.cncf.kubernetes_resilience.pods.api.client import PodClient
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import ConnectionFailedError
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import Timing
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import (
    RENEW_AFTER,
    RENEWAL_INTERVAL,
    JsonTransport,
)
from cluster_lab.http_server import listening
from cluster_lab.ports import LOOPBACK, free_port

from ..support.waiting import WAIT


class Cluster:
    """An API server that moves, and the kubeconfig that follows it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._serving = AsyncExitStack()
        self.authority = trustme.CA()
        # Nobody else is given it while no server of ours listens there.
        self.port = free_port()
        self.say = asyncio.Event()

    async def serve(self, authority: trustme.CA) -> None:
        """Begin to serve with a certificate of an authority; an earlier server is gone then."""
        await self.stop()
        self.authority = authority
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(LOOPBACK).configure_cert(context)
        runner = web.ServerRunner(web.Server(self._answer), access_log=None, shutdown_timeout=0.1)
        server = listening(runner, LOOPBACK, self.port, ssl_context=context)
        await self._serving.enter_async_context(server)

    async def move(self) -> None:
        """Serve at another port, with the certificate of another authority."""
        await self.stop()
        self.port = free_port()
        await self.serve(trustme.CA())

    async def stop(self) -> None:
        await self._serving.aclose()

    def write_kubeconfig(self) -> None:
        """Say where it is now, and whom to trust."""
        authority = self._kubeconfig.with_name(f"{id(self.authority)}.pem")
        self.authority.cert_pem.write_to_path(str(authority))
        cluster = {"server": f"https://{LOOPBACK}:{self.port}", "certificate-authority": str(authority)}
        content = {
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": "secret"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        self._kubeconfig.write_text(yaml.safe_dump(content))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"name": "it", "port": self.port}})
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2):
            await response.write(b'{"type":"BOOKMARK","object":{}}\n')
            await self.say.wait()
        return response


class Side:
    """A client of that cluster, as the runtime makes it, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.loads = 0
        self._timing = Timing(clock=lambda: self.now)
        self._real = ApiClients(timing=self._timing)
        self._load = self._real._load
        self._real._load = self._count
        self.transport: JsonTransport

    async def _count(self) -> Any:
        self.loads += 1
        return await self._load()

    async def connect(self) -> PodClient:
        make = self._real.make
        self.transport = JsonTransport(await make(), renew=make, timing=self._timing)
        self.now += RENEWAL_INTERVAL
        return PodClient(self.transport)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "kubeconfig"))
    cluster = Cluster(tmp_path / "kubeconfig")
    await cluster.serve(trustme.CA())
    cluster.write_kubeconfig()
    yield cluster
    cluster.say.set()
    await cluster.stop()


@pytest.fixture
def side(cluster: Cluster) -> Side:
    return Side()


@pytest.fixture
async def client(side: Side) -> AsyncIterator[PodClient]:
    client = await side.connect()
    yield client
    await client.close()


async def answered_by(client: PodClient) -> int:
    """Return the port of the server that answers."""
    pod = await client.get_pod("default", "it")
    port: int = pod["metadata"]["port"]
    return port


async def test_another_authority_is_trusted_at_once(cluster: Cluster, client: PodClient, side: Side) -> None:
    assert await answered_by(client) == cluster.port
    await cluster.serve(trustme.CA())
    cluster.write_kubeconfig()
    assert await answered_by(client) == cluster.port
    assert side.loads == 2


async def test_another_address_is_found_after_some_failures(
    cluster: Cluster, client: PodClient, side: Side
) -> None:
    before = cluster.port
    assert await answered_by(client) == before
    await cluster.move()
    cluster.write_kubeconfig()
    for _ in range(RENEW_AFTER - 1):
        with pytest.raises(ConnectionFailedError, match="Cannot connect"):
            await answered_by(client)
    assert side.loads == 1
    assert await answered_by(client) == cluster.port != before


async def test_an_outage_is_no_reason_to_load_the_configuration_all_the_time(
    cluster: Cluster, client: PodClient, side: Side
) -> None:
    await cluster.stop()
    for _ in range(10 * RENEW_AFTER):
        side.now += RENEWAL_INTERVAL / (2 * RENEW_AFTER)
        with pytest.raises(ConnectionFailedError, match="Cannot connect"):
            await answered_by(client)
    assert 3 <= side.loads <= 6  # in five intervals
    await cluster.serve(cluster.authority)
    await answered_by(client)


async def test_an_authority_that_nobody_knows_of_yet_is_asked_for_at_most_every_interval(
    cluster: Cluster, client: PodClient, side: Side
) -> None:
    await cluster.serve(trustme.CA())
    for _ in range(5):
        with pytest.raises(ConnectionFailedError, match="CERTIFICATE_VERIFY_FAILED"):
            await answered_by(client)
    assert side.loads == 2
    cluster.write_kubeconfig()
    side.now += RENEWAL_INTERVAL
    assert await answered_by(client) == cluster.port


async def test_a_configuration_that_cannot_be_loaded_changes_nothing(
    cluster: Cluster, client: PodClient, side: Side, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = cluster.authority
    await cluster.serve(trustme.CA())
    (tmp_path / "kubeconfig").write_text("half a fi")
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match="CERTIFICATE_VERIFY_FAILED"):
            await answered_by(client)
        side.now += RENEWAL_INTERVAL
    assert [record.levelname for record in caplog.records if "could be made" in record.message] == ["WARNING"]
    await cluster.serve(trusted)
    assert await answered_by(client) == cluster.port


async def test_a_watch_that_is_open_is_not_touched(cluster: Cluster, client: PodClient, side: Side) -> None:
    async with AsyncExitStack() as stack:
        events = client.watch_pods(
            None, label_selector="", resource_version="1", timeout_seconds=60, inactivity_timeout=WAIT
        )
        stack.push_async_callback(events.aclose)
        assert (await anext(events)).type == "BOOKMARK"
        former = side.transport._client
        for _ in range(3):  # as if requests on other connections did not get through
            side.now += RENEWAL_INTERVAL
            assert await side.transport._renewed(side.transport._client)
        assert side.transport._former >= {former}
        cluster.say.set()
        assert (await anext(events)).type == "BOOKMARK"
        with suppress(StopAsyncIteration):
            await anext(events)
    assert former.api.rest_client.pool_manager.closed
    assert former not in side.transport._former
