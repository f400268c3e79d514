# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Creation: what the server fills in and what it refuses."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cluster_lab.conformance import Api, failure, pod


def test_the_server_fills_in_identity(api: Api) -> None:
    created = api.create("a")

    metadata = created["metadata"]
    assert metadata["namespace"] == api.namespace
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert metadata["resourceVersion"].isdecimal()
    age = datetime.now(UTC) - datetime.strptime(metadata["creationTimestamp"], "%Y-%m-%dT%H:%M:%S%z")
    assert abs(age) < timedelta(minutes=5)
    assert (created["kind"], created["apiVersion"]) == ("Pod", "v1")


def test_the_server_fills_in_pod_defaults(api: Api) -> None:
    body = pod("a")
    del body["spec"]["restartPolicy"]

    spec = api.http.post(api.pods, json=body).json()["spec"]

    assert {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}.items() <= spec.items()


def test_a_new_pod_is_pending_whatever_status_it_came_with(api: Api) -> None:
    created = api.http.post(api.pods, json=pod("a") | {"status": {"phase": "Running", "podIP": "1.2.3.4"}})

    assert created.json()["status"]["phase"] == "Pending"
    assert "podIP" not in created.json()["status"]


def test_a_name_is_taken_once(api: Api) -> None:
    first = api.create("a")

    status = failure(api.http.post(api.pods, json=pod("a")), 409, "AlreadyExists")

    assert status["message"] == 'pods "a" already exists'
    assert api.get("a")["metadata"]["uid"] == first["metadata"]["uid"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": "Not_A_Name"}}, "metadata.name"),
        ({"metadata": {"name": "a", "labels": {"k": "not a label"}}}, "metadata.labels"),
        ({"metadata": {"name": "a", "labels": {"k": "x" * 64}}}, "metadata.labels"),
        ({"spec": {"containers": []}}, "spec.containers"),
        ({"spec": {"containers": [{"name": "base"}]}}, "spec.containers"),
    ],
)
def test_an_invalid_pod_is_refused_with_the_field(api: Api, change: dict[str, Any], field: str) -> None:
    status = failure(api.http.post(api.pods, json=pod("a") | change), 422, "Invalid")

    assert field in status["message"]
    assert api.names() == []


def test_the_namespace_has_to_exist(api: Api) -> None:
    failure(api.http.post("/api/v1/namespaces/not-there/pods", json=pod("a")), 404, "NotFound")


def test_null_members_are_as_good_as_absent(api: Api) -> None:
    body = pod("a") | {"status": None}
    body["metadata"] |= {"annotations": None, "creationTimestamp": None}
    body["spec"]["nodeSelector"] = None

    created = api.http.post(api.pods, json=body).json()

    assert "annotations" not in created["metadata"]
    assert "nodeSelector" not in created["spec"]


def test_a_node_keeps_the_status_that_it_registers_with(api: Api) -> None:
    name = api.create_node(status={"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]})

    node = api.http.get(f"/api/v1/nodes/{name}").json()

    assert node["status"]["addresses"] == [{"type": "InternalIP", "address": "10.0.0.1"}]
    assert "namespace" not in node["metadata"]
