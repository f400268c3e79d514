# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Replacing objects: optimistic locking, and who may change what."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_lab.conformance import Api, Target, failure, pod


def _labelled(obj: dict[str, Any], **labels: str) -> dict[str, Any]:
    return obj | {"metadata": obj["metadata"] | {"labels": labels}}


def test_an_update_from_the_current_version_is_stored(api: Api) -> None:
    created = api.create("a")

    response = api.http.put(api.path("a"), json=_labelled(created, k="v"))

    assert response.status_code == 200
    assert api.get("a") == response.json()
    assert response.json()["metadata"]["labels"] == {"k": "v"}
    assert int(response.json()["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])


def test_an_update_from_an_older_version_is_a_conflict(api: Api) -> None:
    created = api.create("a")
    api.http.put(api.path("a"), json=_labelled(created, k="1")).raise_for_status()

    status = failure(api.http.put(api.path("a"), json=_labelled(created, k="2")), 409, "Conflict")

    assert status["message"] == (
        'Operation cannot be fulfilled on pods "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert status["details"] == {"name": "a", "kind": "pods"}
    assert api.get("a")["metadata"]["labels"] == {"k": "1"}


def test_an_update_without_a_version_overwrites(api: Api) -> None:
    created = api.create("a")
    api.http.put(api.path("a"), json=_labelled(created, k="1")).raise_for_status()
    body = _labelled(created, k="2")
    del body["metadata"]["resourceVersion"]

    assert api.http.put(api.path("a"), json=body).json()["metadata"]["labels"] == {"k": "2"}


def test_an_update_of_another_object_of_that_name_is_a_conflict(api: Api) -> None:
    created = api.create("a")
    body = created | {"metadata": created["metadata"] | {"uid": "11111111-2222-3333-4444-555555555555"}}

    failure(api.http.put(api.path("a"), json=body), 409, "Conflict")


def test_an_update_that_changes_nothing_writes_nothing(api: Api) -> None:
    created = api.create("a")
    with api.watch(resourceVersion=api.version()) as events:
        updated = api.http.put(api.path("a"), json=created)
        api.create("b")
        assert events.names(1) == [("ADDED", "b")]

    assert updated.json()["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


def test_a_missing_pod_cannot_be_updated(api: Api) -> None:
    failure(api.http.put(api.path("a"), json=pod("a")), 404, "NotFound")


def test_body_and_url_have_to_name_the_same_pod(api: Api) -> None:
    api.create("a")

    failure(api.http.put(api.path("a"), json=pod("b")), 400, "BadRequest")


def test_an_update_leaves_the_status_alone(api: Api) -> None:
    created = api.create("a")

    updated = api.http.put(
        api.path("a"), json=_labelled(created, k="v") | {"status": {"phase": "Running"}}
    ).json()

    assert updated["status"] == created["status"]
    assert updated["metadata"]["labels"] == {"k": "v"}


def test_a_pods_spec_is_immutable(api: Api) -> None:
    created = api.create("a")
    body = created | {"spec": created["spec"] | {"nodeName": "elsewhere"}}

    status = failure(api.http.put(api.path("a"), json=body), 422, "Invalid")

    assert [(c["reason"], c["field"]) for c in status["details"]["causes"]] == [
        ("FieldValueForbidden", "spec")
    ]


def test_a_pods_image_may_change(api: Api) -> None:
    created = api.create("a")
    created["spec"]["containers"][0]["image"] = "example.test/none:2"

    updated = api.http.put(api.path("a"), json=created).raise_for_status().json()

    assert updated["spec"]["containers"][0]["image"] == "example.test/none:2"


def test_identity_survives_an_update(api: Api) -> None:
    created = api.create("a")
    metadata = created["metadata"] | {"creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"k": "v"}}
    del metadata["uid"]

    updated = api.http.put(api.path("a"), json=created | {"metadata": metadata}).raise_for_status().json()

    for name in ("uid", "creationTimestamp"):
        assert updated["metadata"][name] == created["metadata"][name]


def test_an_update_does_not_undo_a_deletion(api: Api) -> None:
    api.create_bound("a")
    api.delete("a").raise_for_status()
    marked = api.get("a")
    body = _labelled(marked, k="v")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        body["metadata"].pop(name)

    updated = api.http.put(api.path("a"), json=body).raise_for_status().json()

    assert updated["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


def test_a_node_is_cordoned_by_an_update(api: Api) -> None:
    path = f"/api/v1/nodes/{api.create_node()}"
    headers = {"Content-Type": "application/merge-patch+json"}

    node = api.http.patch(path, json={"spec": {"unschedulable": True}}, headers=headers).json()

    assert node["spec"]["unschedulable"] is True
    found = api.http.get("/api/v1/nodes", params={"fieldSelector": "spec.unschedulable=true"}).json()["items"]
    assert node["metadata"]["name"] in [item["metadata"]["name"] for item in found]


class TestStatus:
    def test_a_status_update_leaves_the_spec_alone(self, api: Api) -> None:
        created = api.create("a")
        body = created | {"spec": created["spec"] | {"nodeName": "x"}, "status": {"phase": "Running"}}

        updated = api.http.put(api.path("a", "status"), json=body).raise_for_status().json()

        assert updated["spec"] == created["spec"]
        assert updated["status"]["phase"] == "Running"

    def test_the_qos_class_is_kept(self, api: Api, target: Target) -> None:
        target.require(32, "keeping the QoS class in a status without one")
        created = api.create("a")

        updated = api.http.put(api.path("a", "status"), json=created | {"status": {"phase": "Failed"}}).json()

        assert updated["status"] == {"phase": "Failed", "qosClass": "BestEffort"}

    def test_a_status_update_is_locked_too(self, api: Api) -> None:
        created = api.create("a")
        api.set_status("a", phase="Running")

        response = api.http.put(api.path("a", "status"), json=created | {"status": {"phase": "Failed"}})

        failure(response, 409, "Conflict")

    def test_status_can_be_read_by_itself(self, api: Api) -> None:
        created = api.create("a")

        assert api.http.get(api.path("a", "status")).json() == created

    @pytest.mark.parametrize(
        ("policy", "exit_code", "allowed"),
        [("Never", 1, False), ("OnFailure", 0, False), ("OnFailure", 1, True)],
    )
    def test_a_container_that_is_not_restarted_stays_dead(
        self, api: Api, policy: str, exit_code: int, allowed: bool
    ) -> None:
        api.create_bound("a", restartPolicy=policy)
        base = {"name": "base", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        terminated = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
        api.set_status("a", containerStatuses=[base | {"state": terminated}])

        running = [base | {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
        response = api.patch("a", {"status": {"containerStatuses": running}}, subresource="status")

        if allowed:
            assert response.status_code == 200
        else:
            failure(response, 422, "Invalid")

    def test_a_node_reports_its_status(self, api: Api) -> None:
        name = api.create_node()
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}

        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        path = f"/api/v1/nodes/{name}/status"
        node = api.http.patch(path, json={"status": {"conditions": [ready]}}, headers=headers).json()

        assert "Ready" in [c["type"] for c in node["status"]["conditions"]]
