# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The clients that Airflow and its provider use work on the embedded server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kubernetes
import pytest
from kubernetes.dynamic import DynamicClient

from cluster_lab.apiserver import running_server
from cluster_lab.conformance import pod

METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "kubeconfig"
    with running_server(run_controllers=False) as server:
        server.write_kubeconfig(path)
        yield path


def test_the_synchronous_client(kubeconfig: Path) -> None:
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as client:
        core = kubernetes.client.CoreV1Api(client)
        created = core.create_namespaced_pod("default", pod("a", {"k": "v"}))
        found = core.list_namespaced_pod("default", label_selector="k=v").items
        events = kubernetes.watch.Watch().stream(
            core.list_namespaced_pod, "default", resource_version="0", timeout_seconds=1
        )
        assert [(event["type"], event["object"].metadata.uid) for event in events] == [
            ("ADDED", created.metadata.uid)
        ]
        core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"k": None}}})
        core.delete_namespaced_pod("a", "default", grace_period_seconds=0)

        assert [item.metadata.name for item in found] == ["a"]
        assert core.list_namespaced_pod("default").items == []


def test_the_dynamic_client_lists_metadata_as_airflow_does(kubeconfig: Path, tmp_path: Path) -> None:
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as client:
        kubernetes.client.CoreV1Api(client).create_namespaced_pod("default", pod("a", {"k": "v"}))
        dynamic = DynamicClient(client, cache_file=str(tmp_path / "discovery.json"))
        pods = dynamic.resources.get(api_version="v1", kind="Pod")

        listed = pods.get(namespace="default", label_selector="k=v", header_params={"Accept": METADATA_LIST})

    assert listed.kind == "PartialObjectMetadataList"
    assert [item.metadata.name for item in listed.items] == ["a"]
