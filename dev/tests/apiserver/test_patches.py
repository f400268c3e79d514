# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from typing import Any

import pytest

from cluster_lab.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from cluster_lab.apiserver.status import ApiError


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_rfc_7386(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)

    assert merge_patch(target, patch) == result
    assert target == before


CONTAINERS = {
    "containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]
}


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        (
            {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
            {
                "containers": [
                    {
                        "name": "a",
                        "image": "1",
                        "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
                    },
                    {"name": "b"},
                ]
            },
        ),
        (
            {"containers": [{"name": "c"}]},
            {"containers": [*CONTAINERS["containers"], {"name": "c"}]},
        ),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, {"containers": [{"name": "b"}]}),
        ({"containers": [{"name": "z"}, {"$patch": "replace"}]}, {"containers": [{"name": "z"}]}),
        ({"$patch": "replace", "x": 1}, {"x": 1}),
        ({"$patch": "delete"}, {}),
        ({"$setElementOrder/containers": [{"name": "b"}], "x": 1}, {**CONTAINERS, "x": 1}),
        ({"containers": None}, {}),
    ],
)
def test_strategic_merge_patch(patch: dict[str, Any], result: dict[str, Any]) -> None:
    before = copy.deepcopy(CONTAINERS)

    assert strategic_merge_patch(CONTAINERS, patch) == result
    assert before == CONTAINERS


def test_values_are_removed_from_a_list_by_name() -> None:
    patch = {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}

    assert strategic_merge_patch({"finalizers": ["a", "b"]}, patch) == {"finalizers": ["b", "c"]}


@pytest.mark.parametrize("patch", [[], "x", {"conditions": [{"status": "True"}]}, {"$patch": "shred"}])
def test_a_strategic_patch_that_makes_no_sense_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(ApiError) as refused:
        strategic_merge_patch({"conditions": []}, patch)

    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({}, 400),
        ([{"op": "shred", "path": "/a"}], 400),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "replace", "path": "/b/c", "value": 2}], 422),
        ([{"op": "add", "path": "", "value": 5}], 422),
    ],
)
def test_json_patch_failures(patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": 1}, patch)

    assert refused.value.code == code
