# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The three patch formats."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_lab.conformance import MERGE_PATCH, Api, condition, failure

STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
READY = {"type": "Ready", "status": "False"}
TARGETED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}


def _container(name: str, ready: bool) -> dict[str, Any]:
    return {"name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": {}}


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC])
def test_members_are_merged_and_null_removes(api: Api, content_type: str) -> None:
    api.create("a", {"keep": "1", "drop": "1"})

    patched = api.patch("a", {"metadata": {"labels": {"drop": None, "new": "1"}}}, content_type)

    assert patched.status_code == 200
    assert patched.json()["metadata"]["labels"] == {"keep": "1", "new": "1"}
    assert api.get("a") == patched.json()


def test_the_last_label_can_be_removed(api: Api) -> None:
    api.create("a", {"only": "1"})

    assert "labels" not in api.patch("a", {"metadata": {"labels": {"only": None}}}).json()["metadata"]


def test_json_patch_operations(api: Api) -> None:
    api.create("a", {"k": "1"})
    patch = [
        {"op": "test", "path": "/metadata/labels/k", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/k", "value": "2"},
        {"op": "add", "path": "/metadata/labels/example.test~1new", "value": "3"},
    ]

    patched = api.patch("a", patch, JSON_PATCH).raise_for_status().json()

    assert patched["metadata"]["labels"] == {"k": "2", "example.test/new": "3"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/labels/k", "value": "other"},
        {"op": "remove", "path": "/metadata/labels/absent"},
    ],
)
def test_a_json_patch_that_does_not_fit_is_invalid(api: Api, operation: dict[str, str]) -> None:
    before = api.create("a", {"k": "1"})

    failure(api.patch("a", [operation], JSON_PATCH), 422, "Invalid")

    assert api.get("a") == before


def test_a_merge_patch_replaces_lists(api: Api) -> None:
    api.create("a")
    api.set_status("a", conditions=[READY])

    patched = api.patch("a", {"status": {"conditions": [TARGETED]}}, MERGE_PATCH, "status").json()

    assert [c["type"] for c in patched["status"]["conditions"]] == ["DisruptionTarget"]


def test_a_strategic_patch_merges_conditions_by_type(api: Api) -> None:
    api.create("a")
    api.set_status("a", conditions=[READY | {"reason": "r"}])

    patch = {"status": {"conditions": [TARGETED, {"type": "Ready", "status": "True"}]}}
    patched = api.patch("a", patch, STRATEGIC, "status").json()

    assert condition(patched, "DisruptionTarget") is not None
    ready = condition(patched, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("True", "r")


def test_a_strategic_patch_deletes_by_key(api: Api) -> None:
    api.create("a")
    api.set_status("a", conditions=[READY, TARGETED])

    patch = {"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}
    patched = api.patch("a", patch, STRATEGIC, "status").json()

    assert [c["type"] for c in patched["status"]["conditions"]] == ["DisruptionTarget"]


def test_container_statuses_are_replaced_even_by_a_strategic_patch(api: Api) -> None:
    api.create_bound("a")
    api.set_status("a", containerStatuses=[_container("base", True), _container("side", True)])

    patch = {"status": {"containerStatuses": [_container("base", False)]}}
    patched = api.patch("a", patch, STRATEGIC, "status").json()

    assert [(s["name"], s["ready"]) for s in patched["status"]["containerStatuses"]] == [("base", False)]


def test_a_strategic_patch_merges_containers_by_name(api: Api) -> None:
    api.create("a")

    patch = {"spec": {"containers": [{"name": "base", "image": "example.test/none:2"}]}}
    container = api.patch("a", patch, STRATEGIC).raise_for_status().json()["spec"]["containers"][0]

    assert container["image"] == "example.test/none:2"
    assert container["terminationMessagePath"] == "/dev/termination-log"


def test_finalizers_are_merged_as_values(api: Api) -> None:
    api.create("a")
    api.patch("a", {"metadata": {"finalizers": ["example.test/one"]}}).raise_for_status()

    patched = api.patch("a", {"metadata": {"finalizers": ["example.test/two"]}}, STRATEGIC).json()
    api.patch("a", {"metadata": {"finalizers": None}}).raise_for_status()

    assert sorted(patched["metadata"]["finalizers"]) == ["example.test/one", "example.test/two"]


def test_a_patch_needs_no_version(api: Api) -> None:
    api.create("a")
    api.patch("a", {"metadata": {"labels": {"a": "1"}}}).raise_for_status()

    assert api.patch("a", {"metadata": {"labels": {"b": "1"}}}).status_code == 200


def test_a_patch_with_an_older_version_is_a_conflict(api: Api) -> None:
    version = api.create("a")["metadata"]["resourceVersion"]
    api.patch("a", {"metadata": {"labels": {"a": "1"}}}).raise_for_status()

    response = api.patch("a", {"metadata": {"resourceVersion": version, "labels": {"b": "1"}}})

    failure(response, 409, "Conflict")


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


def test_a_missing_pod_cannot_be_patched(api: Api) -> None:
    failure(api.patch("a", {}), 404, "NotFound")


def test_other_patch_formats_are_unsupported(api: Api) -> None:
    api.create("a")

    failure(api.patch("a", {}, "application/json"), 415, "UnsupportedMediaType")
