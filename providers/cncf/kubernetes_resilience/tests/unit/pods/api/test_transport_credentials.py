# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Credentials that expire while a client is in use."""

from __future__ import annotations

import json
from typing import Any, Self

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import JsonTransport


class Response:
    """As much of aiohttp's response as the transport uses."""

    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, status: int) -> None:
        self.status = status

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def release(self) -> None: ...

    async def read(self) -> bytes:
        return json.dumps({"status": self.status}).encode()


class ApiClient:
    """Answers with one status, whatever is asked."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.closed = False

    async def call_api(self, *_: Any, **__: Any) -> Response:
        return Response(self.status)

    async def close(self) -> None:
        self.closed = True


async def get(transport: JsonTransport) -> Any:
    return await transport.request("GET", "/api/v1/pods", {})


async def test_expired_credentials_are_renewed_and_the_request_is_repeated() -> None:
    expired, fresh = ApiClient(401), ApiClient(200)

    async def renew() -> ApiClient:
        return fresh

    transport = JsonTransport(expired, renew=renew)
    assert await get(transport) == {"status": 200}
    assert expired.closed  # nobody was using its connections
    await transport.close()
    assert fresh.closed


async def test_credentials_that_are_refused_again_are_not_renewed_in_a_busy_loop() -> None:
    made = []

    async def renew() -> ApiClient:
        made.append(ApiClient(401))
        return made[-1]

    transport = JsonTransport(ApiClient(401), renew=renew)
    for _ in range(3):
        with pytest.raises(KubernetesApiError) as caught:
            await get(transport)
        assert caught.value.status == 401
    assert len(made) == 1
    await transport.close()
