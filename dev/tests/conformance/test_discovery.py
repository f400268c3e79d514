# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Discovery and authentication."""

from __future__ import annotations

import httpx
import pytest

from cluster_lab.conformance import Target, failure


def test_version_has_a_number_and_a_name(target: Target) -> None:
    version = target.http.get("/version").json()

    assert version["major"] == "1"
    assert version["gitVersion"].startswith(f"v1.{version['minor'].rstrip('+')}.")


def test_core_resources_are_listed_with_their_verbs(target: Target) -> None:
    listed = target.http.get("/api/v1").json()

    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "v1")
    entries = {entry["name"]: entry for entry in listed["resources"]}
    assert entries["pods"]["kind"] == "Pod"
    assert entries["pods"]["namespaced"] is True
    assert set(entries["pods"]["verbs"]) >= {"create", "delete", "get", "list", "patch", "watch"}
    assert entries["nodes"]["namespaced"] is False
    assert entries["pods/eviction"]["kind"] == "Eviction"
    assert {"pods/status", "pods/binding", "pods/log", "nodes/status"} <= entries.keys()


def test_a_wrong_token_is_unauthorized(target: Target) -> None:
    response = target.http.get("/api/v1/pods", headers={"Authorization": "Bearer wrong"})

    failure(response, 401, "Unauthorized")


@pytest.mark.parametrize("path", ["/api/v1/unicorns", "/apis/example.test/v1/pods"])
def test_an_unknown_resource_is_not_found(target: Target, path: str) -> None:
    response: httpx.Response = target.http.get(path)

    assert response.status_code == 404


def test_a_verb_that_a_resource_lacks_is_not_allowed(target: Target) -> None:
    failure(target.http.patch("/api/v1/namespaces/default/pods", json={}), 405, "MethodNotAllowed")
