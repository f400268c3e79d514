# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from cluster_lab.apiserver.resources import NODES, PODS
from cluster_lab.apiserver.selectors import Requirement, parse_fields, parse_labels
from cluster_lab.apiserver.status import ApiError


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        ("a", [Requirement("a", "Exists")]),
        ("!a", [Requirement("a", "DoesNotExist")]),
        ("! a", [Requirement("a", "DoesNotExist")]),
        ("a=b", [Requirement("a", "In", ("b",))]),
        ("a == b", [Requirement("a", "In", ("b",))]),
        ("a!=b", [Requirement("a", "NotIn", ("b",))]),
        ("a=", [Requirement("a", "In", ("",))]),
        ("a in (b,c), d notin (e)", [Requirement("a", "In", ("b", "c")), Requirement("d", "NotIn", ("e",))]),
        ("a>3", [Requirement("a", "Gt", ("3",))]),
        ("x.test/a_b.c=1", [Requirement("x.test/a_b.c", "In", ("1",))]),
        ("in=1,notin=2", [Requirement("in", "In", ("1",)), Requirement("notin", "In", ("2",))]),
    ],
)
def test_label_selectors_are_parsed(text: str, requirements: list[Requirement]) -> None:
    assert list(parse_labels(text)) == requirements


@pytest.mark.parametrize("text", [",", "a,", "a b", "a in", "a in ()x", "a in (b c)", "=b", "a=b c", "-a"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(text)

    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("requirement", "labels", "expected"),
    [
        (Requirement("a", "NotIn", ("b",)), {}, True),
        (Requirement("a", "NotIn", ("b",)), {"a": "b"}, False),
        (Requirement("a", "In", ("",)), {}, False),
        (Requirement("a", "In", ("",)), {"a": ""}, True),
        (Requirement("a", "Gt", ("3",)), {"a": "4"}, True),
        (Requirement("a", "Gt", ("3",)), {"a": "3"}, False),
        (Requirement("a", "Lt", ("3",)), {"a": "-1"}, True),
        (Requirement("a", "Lt", ("3",)), {"a": "x"}, False),
        (Requirement("a", "Gt", ("x",)), {"a": "4"}, False),
    ],
)
def test_requirements_match(requirement: Requirement, labels: dict[str, str], expected: bool) -> None:
    assert requirement.matches(labels) is expected


def test_a_field_that_is_absent_is_empty() -> None:
    (term,) = parse_fields("spec.nodeName=", PODS)

    assert term.matches({"metadata": {}})
    assert not term.matches({"metadata": {}, "spec": {"nodeName": "n"}})


def test_a_schedulable_node_is_not_unschedulable() -> None:
    (term,) = parse_fields("spec.unschedulable=false", NODES)

    assert term.matches({"metadata": {}, "spec": {}})
    assert not term.matches({"metadata": {}, "spec": {"unschedulable": True}})


@pytest.mark.parametrize("text", ["metadata.namespace=a", "spec.nodeName=a", "metadata.name"])
def test_fields_that_a_node_cannot_be_selected_by(text: str) -> None:
    with pytest.raises(ApiError):
        parse_fields(text, NODES)
