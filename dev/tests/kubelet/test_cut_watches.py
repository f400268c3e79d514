# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from kubernetes_asyncio import client, config

from cluster_lab.lab import ClusterLab


async def test_every_watch_is_broken_off_again_and_again(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with (
        ClusterLab(kubeconfig=kubeconfig, embedded=True, nodes=0, cut_watches=0.05),
        await config.new_client_from_config(str(kubeconfig), persist_config=False) as api,
    ):
        for _ in range(2):
            response = await client.CoreV1Api(api).list_pod_for_all_namespaces(
                watch=True, _preload_content=False
            )
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
