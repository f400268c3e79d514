# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Discovery, tokens, binding, eviction and logs."""

from __future__ import annotations

from cluster_lab.conformance import Api, Target, condition, failure

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


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


class TestBinding:
    def test_it_gives_the_pod_a_node(self, api: Api) -> None:
        api.create("a")
        node = api.create_node()

        response = api.bind("a", node)

        assert (response.status_code, response.json()) == (201, SUCCESS)
        bound = api.get("a")
        assert bound["spec"]["nodeName"] == node
        scheduled = condition(bound, "PodScheduled")
        assert scheduled is not None
        assert scheduled["status"] == "True"
        assert bound["status"]["phase"] == "Pending"

    def test_a_pod_is_bound_once(self, api: Api) -> None:
        node = api.create_bound("a")["spec"]["nodeName"]

        status = failure(api.bind("a", api.create_node()), 409, "Conflict")

        assert f'pod a is already assigned to node "{node}"' in status["message"]
        assert api.get("a")["spec"]["nodeName"] == node


def test_an_eviction_is_a_graceful_deletion(api: Api) -> None:
    api.create_bound("a")

    response = api.evict("a")

    assert (response.status_code, response.json()) == (201, SUCCESS)
    metadata = api.get("a")["metadata"]
    assert "deletionTimestamp" in metadata
    assert metadata["deletionGracePeriodSeconds"] == 30


def test_a_pod_without_a_node_has_no_log(api: Api) -> None:
    api.create("a")

    response = api.http.get(api.path("a", "log"))

    assert (response.status_code, response.content) == (204, b"")
