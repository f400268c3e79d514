# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Clients of one API server, made as ``[kubernetes_executor]`` says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from airflow.configuration import conf

from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import REAL, Timing
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import RENEWAL_INTERVAL, fix_proxy

CONNECT_SECONDS = 60.0
"""For one client: to read the configuration and to run the credential plug-in that it names."""


class ApiClients:
    """
    Makes ``kubernetes_asyncio.client.ApiClient``, each with connections of its own.

    Each namespace needs a client, and a credential plug-in may take some seconds. So the configuration is
    loaded once in :data:`RENEWAL_INTERVAL`, whether that succeeds or not. A factory of the deployment makes
    each client: what it does to a client is not known here, so none can be copied.

    :param team_name: the team whose executor it is, for its factory
    :param load: makes a client from the configuration as it is now; the default one is the official
        provider's
    """

    def __init__(
        self,
        team_name: str | None = None,
        *,
        load: Callable[[], Awaitable[Any]] | None = None,
        timing: Timing = REAL,
    ) -> None:
        self._load: Callable[[], Awaitable[Any]] = load or partial(_load, team_name)
        self._has_factory = bool(
            conf.get("kubernetes_executor", "async_client_factory", fallback=None, **_team(team_name))
        )
        self._timing = timing
        self._loading = asyncio.Lock()
        self._loaded_at = float("-inf")
        self._loaded: Callable[[], Any] | Exception

    async def make(self) -> Any:
        """
        Make a client. No request is sent.

        :raises TimeoutError: after :data:`CONNECT_SECONDS`, saying what took so long
        :raises Exception: whatever the factory or kubernetes_asyncio raise for an unusable configuration
        """
        limit = asyncio.timeout(CONNECT_SECONDS)
        try:
            async with limit:
                client = await (self._load() if self._has_factory else self._share())
        except TimeoutError as error:
            if not limit.expired():
                raise
            what = (
                "[kubernetes_executor] async_client_factory did not return"
                if self._has_factory
                else "[kubernetes_executor] config_file was not read, or its credential plug-in did not end,"
            )
            raise TimeoutError(f"{what} within {CONNECT_SECONDS:g} s") from error
        fix_proxy(client)
        return client

    async def _share(self) -> Any:
        async with self._loading:
            if self._timing.clock() - self._loaded_at >= RENEWAL_INTERVAL:
                try:
                    self._loaded = await self._reload()
                except Exception as error:  # noqa: BLE001 - raised below, for all who wait for it
                    self._loaded = error
                self._loaded_at = self._timing.clock()
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded()

    async def _reload(self) -> Callable[[], Any]:
        client = await self._load()
        await client.close()
        return lambda: type(client)(configuration=client.configuration)


async def _load(team_name: str | None) -> Any:
    from airflow.providers.cncf.kubernetes import kube_client  # noqa: PLC0415

    # 10.24 brought [kubernetes_executor] async_client_factory and with it this function.
    if hasattr(kube_client, "_get_executor_async_kube_client"):
        api: Any = await kube_client._get_executor_async_kube_client(team_name=team_name)
    else:
        api = await kube_client.get_async_kube_client()
    return api.api_client


def _team(team_name: str | None) -> dict[str, Any]:
    # Airflow 3.1 does not know teams.
    return {"team_name": team_name} if team_name else {}
