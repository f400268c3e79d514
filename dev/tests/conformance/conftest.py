# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server under test: the embedded one, or that of CONFORMANCE_KUBECONFIG, before CONFORMANCE_ETCD."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cluster_lab.apiserver import running_server
from cluster_lab.conformance import Api, Target, connect

TOKEN = "conformance"


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    kubeconfig = os.environ.get("CONFORMANCE_KUBECONFIG")
    yield from _real(Path(kubeconfig)) if kubeconfig else _embedded(tmp_path_factory.mktemp("target") / "kc")


def _embedded(kubeconfig: Path) -> Iterator[Target]:
    with running_server(token=TOKEN) as server:
        server.write_kubeconfig(kubeconfig)
        with connect(kubeconfig) as http:
            yield Target(http, server.compact)


def _real(kubeconfig: Path) -> Iterator[Target]:
    with connect(kubeconfig) as http:

        def compact() -> None:
            revision = http.get("/api/v1/pods").raise_for_status().json()["metadata"]["resourceVersion"]
            url = f"{os.environ['CONFORMANCE_ETCD']}/v3/kv/compaction"
            httpx.post(url, json={"revision": revision}).raise_for_status()

        yield Target(http, compact)


@pytest.fixture
def api(target: Target) -> Iterator[Api]:
    api = Api.in_new_namespace(target.http)
    yield api
    api.clean_up()
