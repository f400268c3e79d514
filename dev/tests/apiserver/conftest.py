# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An embedded server on a thread of its own, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from cluster_lab.apiserver import ApiServer
from cluster_lab.apiserver.testing import running_server
from cluster_lab.conformance import Api, connect


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running_server(run_controllers=False) as server:
        yield server


@pytest.fixture
def http(server: ApiServer) -> Iterator[httpx.Client]:
    with connect(server.url, None) as http:
        yield http


@pytest.fixture
def api(http: httpx.Client) -> Api:
    return Api(http, "default")
