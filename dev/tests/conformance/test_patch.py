# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The two patch formats."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_lab.apiserver.patches import MERGE, STRATEGIC_MERGE
from cluster_lab.conformance import Api, condition, failure

READY = {"type": "Ready", "status": "False"}
TARGETED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}


def _container(name: str, ready: bool) -> dict[str, Any]:
    return {"name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": {}}


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC_MERGE])
def test_members_are_merged_and_null_removes(api: Api, content_type: str) -> None:
    api.create("a", {"keep": "1", "drop": "1"})

    patched = api.patch("a", {"metadata": {"labels": {"drop": None, "new": "1"}}}, content_type)

    assert patched.status_code == 200
    assert patched.json()["metadata"]["labels"] == {"keep": "1", "new": "1"}
    assert api.get("a") == patched.json()


def test_the_last_label_can_be_removed(api: Api) -> None:
    api.create("a", {"only": "1"})

    assert "labels" not in api.patch("a", {"metadata": {"labels": {"only": None}}}).json()["metadata"]


def test_a_merge_patch_replaces_lists(api: Api) -> None:
    api.create("a")
    api.set_status("a", conditions=[READY])

    patched = api.patch("a", {"status": {"conditions": [TARGETED]}}, MERGE, "status").json()

    assert [c["type"] for c in patched["status"]["conditions"]] == ["DisruptionTarget"]


def test_a_strategic_patch_merges_conditions_by_type(api: Api) -> None:
    api.create("a")
    api.set_status("a", conditions=[READY | {"reason": "r"}])

    patch = {"status": {"conditions": [TARGETED, {"type": "Ready", "status": "True"}]}}
    patched = api.patch("a", patch, STRATEGIC_MERGE, "status").json()

    assert condition(patched, "DisruptionTarget") is not None
    ready = condition(patched, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("True", "r")


def test_container_statuses_are_replaced_even_by_a_strategic_patch(api: Api) -> None:
    api.create_bound("a")
    api.set_status("a", containerStatuses=[_container("base", True), _container("side", True)])

    patch = {"status": {"containerStatuses": [_container("base", False)]}}
    patched = api.patch("a", patch, STRATEGIC_MERGE, "status").json()

    assert [(s["name"], s["ready"]) for s in patched["status"]["containerStatuses"]] == [("base", False)]


def test_a_patch_for_another_uid_is_invalid(api: Api) -> None:
    api.create("a")

    patch = {"metadata": {"uid": "11111111-2222-3333-4444-555555555555", "labels": {"b": "1"}}}

    failure(api.patch("a", patch), 422, "Invalid")


def test_a_patch_that_changes_nothing_writes_nothing(api: Api) -> None:
    created = api.create("a", {"k": "1"})

    assert api.patch("a", {"metadata": {"labels": {"k": "1"}}}).json() == created


def test_the_main_resource_ignores_a_patched_status(api: Api) -> None:
    created = api.create("a")

    patched = api.patch("a", {"status": {"phase": "Failed"}}).raise_for_status().json()

    assert patched["status"] == created["status"]


def test_a_patch_of_a_pods_spec_is_refused(api: Api) -> None:
    api.create("a")

    failure(api.patch("a", {"spec": {"nodeName": "x"}}), 422, "Invalid")


def test_a_patch_does_not_change_what_the_server_owns(api: Api) -> None:
    api.create_bound("a")
    api.delete("a").raise_for_status()
    marked = api.get("a")["metadata"]

    patch = {"creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": None, "labels": {"k": "v"}}
    patched = api.patch("a", {"metadata": patch}).raise_for_status().json()["metadata"]

    assert patched["labels"] == {"k": "v"}
    for name in ("uid", "creationTimestamp", "deletionTimestamp"):
        assert patched[name] == marked[name]


def test_other_patch_formats_are_unsupported(api: Api) -> None:
    api.create("a")

    failure(api.patch("a", {}, "application/json"), 415, "UnsupportedMediaType")


def test_a_node_is_cordoned_by_a_patch(api: Api) -> None:
    path = f"/api/v1/nodes/{api.create_node()}"
    headers = {"Content-Type": MERGE}

    node = api.http.patch(path, json={"spec": {"unschedulable": True}}, headers=headers).json()

    assert node["spec"]["unschedulable"] is True


def test_a_patched_status_leaves_the_spec_alone(api: Api) -> None:
    created = api.create("a")

    body = {"spec": {"nodeName": "x"}, "status": {"phase": "Running"}}
    patched = api.patch("a", body, subresource="status").raise_for_status().json()

    assert patched["spec"] == created["spec"]
    assert patched["status"]["phase"] == "Running"
