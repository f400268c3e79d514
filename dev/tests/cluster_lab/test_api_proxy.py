# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The proxy before an API server, here the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_lab.api_proxy import ApiProxy
from cluster_lab.apiserver import ApiServer, running_server
from cluster_lab.conformance import Api, connect

TOKEN = "secret"
FOR_EVER = 3600.0


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running_server(run_controllers=False, token=TOKEN) as server:
        yield server


@pytest.fixture
def proxy(server: ApiServer, tmp_path: Path) -> Iterator[ApiProxy]:
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    with ApiProxy(kubeconfig) as proxy:
        yield proxy


@pytest.fixture
def api(proxy: ApiProxy, tmp_path: Path) -> Iterator[Api]:
    proxy.write_kubeconfig(tmp_path / "kubeconfig-of-the-proxy")
    with connect(tmp_path / "kubeconfig-of-the-proxy") as http:
        yield Api(http, "default")


def test_watches_expire_in_an_event(proxy: ApiProxy, api: Api) -> None:
    version = api.version()
    proxy.expire_watch()
    with api.watch() as fresh:
        api.create("a")
        assert fresh.names(1) == [("ADDED", "a")]
    with api.watch(resourceVersion=version) as expired:
        ((kind, status),) = expired
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    with api.watch(resourceVersion=version) as again:
        assert again.names(1) == [("ADDED", "a")]


def test_late_events_come_in_order(proxy: ApiProxy, api: Api) -> None:
    with api.watch() as events:
        proxy.lag(0.05)
        for name in "abc":
            api.create(name)
        assert events.names(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        proxy.lag(FOR_EVER)
        api.create("d")
        api.set_status("d", phase="Running")
        proxy.lag(0)
        assert events.names(2) == [("ADDED", "d"), ("MODIFIED", "d")]
