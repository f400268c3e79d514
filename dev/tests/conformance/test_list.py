# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Get and list: shapes, selectors, pages and other representations."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_lab.conformance import Api, Target, failure

METADATA_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


def test_a_missing_pod_is_not_found(api: Api) -> None:
    status = failure(api.http.get(api.path("a")), 404, "NotFound")

    assert status["message"] == 'pods "a" not found'


def test_a_list_has_items_without_kind(api: Api) -> None:
    api.create("b")
    api.create("a")

    listed = api.http.get(api.pods).json()

    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
    assert not any({"kind", "apiVersion"} & item.keys() for item in listed["items"])


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", ["a", "b", "c"]),
        ("app=x", ["a", "b"]),
        ("app!=x", ["c"]),
        ("tier!=web", ["b", "c"]),
        ("tier notin (web)", ["b", "c"]),
        ("app!=z,tier notin (web, cache)", ["b"]),
        ("tier", ["a", "b"]),
        ("app=x,tier=db", ["b"]),
        ("empty=", ["c"]),
        ("example.test/key=v", ["a"]),
    ],
)
def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    api.create("a", {"app": "x", "tier": "web", "example.test/key": "v"})
    api.create("b", {"app": "x", "tier": "db"})
    api.create("c", {"app": "z", "empty": ""})

    assert api.names(labelSelector=selector) == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("status.phase=Pending", ["b"]),
        ("status.phase!=Failed", ["b"]),
        ("spec.nodeName=", ["b"]),
        ("status.phase!=Succeeded,spec.nodeName=", ["b"]),
    ],
)
def test_field_selectors(api: Api, selector: str, names: list[str]) -> None:
    api.create_bound("a")
    api.set_status("a", phase="Failed")
    api.create("b")

    assert api.names(fieldSelector=selector) == names


def test_pages_are_consistent(api: Api) -> None:
    for name in "abcde":
        api.create(name)

    first = api.http.get(api.pods, params={"limit": 2}).json()
    api.delete("d", gracePeriodSeconds=0).raise_for_status()
    api.create("cc")
    second = _next_page(api, first)
    last = _next_page(api, second)

    pages = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, last)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, last)}) == 1
    assert "continue" not in last["metadata"]


def _next_page(api: Api, page: dict[str, Any]) -> dict[str, Any]:
    query = {"limit": 2, "continue": page["metadata"]["continue"]}
    following: dict[str, Any] = api.http.get(api.pods, params=query).raise_for_status().json()
    return following


def test_a_page_expires_with_its_version(api: Api, target: Target) -> None:
    for name in "ab":
        api.create(name)
    token = api.http.get(api.pods, params={"limit": 1}).json()["metadata"]["continue"]
    api.delete("b", gracePeriodSeconds=0)
    target.compact()

    failure(api.http.get(api.pods, params={"limit": 1, "continue": token}), 410, "Expired")


def test_a_list_of_metadata_only(api: Api) -> None:
    api.create("a", {"app": "x"})

    listed = api.http.get(api.pods, headers=METADATA_LIST).json()

    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert int(listed["metadata"]["resourceVersion"]) > 0
    assert listed["items"][0]["metadata"]["labels"] == {"app": "x"}
    assert not {"spec", "status"} & listed["items"][0].keys()
