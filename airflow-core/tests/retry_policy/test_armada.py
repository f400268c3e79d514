# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Retry policies in Armada's form: what is told to whoever brings one."""

from __future__ import annotations

import pytest

from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import PolicyFileError, parse_policies

CATEGORY = "onCategories (those of AIP-97), or what the category is made of"
FALLBACK = built_in(1, ("Error",))
FLAT = """\
apiVersion: armadaproject.io/v1beta1
kind: RetryPolicy
name: training
retryLimit: 3
defaultAction: Fail
rules:
- action: Fail
  onCategory: user-error
- action: Retry
  onSubcategory: transient
  mutate: {affinity: {avoidSameNode: true}}
- action: Ignore
  onExitCodes: {operator: In, values: [74]}
"""
NESTED = """\
apiVersion: armadaproject.io/v1beta1
kind: RetryPolicy
metadata:
  name: Training
spec:
  retryLimit: 3
  rules:
  - action: Retry
    onConditions: [Preempted]
"""


def told(content: str) -> list[str]:
    with pytest.raises(PolicyFileError) as error:
        parse_policies(content, "f.yaml", FALLBACK)
    return [line.removeprefix("f.yaml:") for line in str(error.value).splitlines()]


def test_manifest_of_armadactl() -> None:
    assert told(FLAT) == [
        "1: apiVersion: is Armada's; here: nothing, a policy is an item of policies",
        "2: kind: is Armada's; here: nothing, a policy is an item of policies",
        "3: name: is Armada's; here: policies[0].name",
        "4: retryLimit: is Armada's; here: policies[0].retryLimit",
        "5: defaultAction: is Armada's; here: policies[0].defaultAction",
        "6: rules: is Armada's; here: policies[0].rules",
        f"8: rules[0].onCategory: is Armada's; here: {CATEGORY}",
        "10: rules[1].onSubcategory: is Armada's; here: onReasons",
        "11: rules[1].mutate.affinity: is Armada's; here: avoidNode of the rule for avoidSameNode",
        "12: rules[2].action: got 'Ignore'; allowed: Retry, Fail, Count",
    ]


def test_fields_of_the_design() -> None:
    # https://github.com/armadaproject/armada/issues/4683
    rule = "{action: Retry, onFailureCategory: [cuda_error], antiAffinity: true, backoff: {initialDelay: 5s}}"
    head = "kind: RetryPolicy\nname: training\nrules:\n"
    assert told(f"{head}- {rule}\n")[3:] == [
        f"4: rules[0].onFailureCategory: is Armada's; here: {CATEGORY}",
        "4: rules[0].antiAffinity: is Armada's; here: avoidNode",
    ]


def test_manifest_with_metadata_and_spec() -> None:
    lines = told(NESTED)
    assert (
        "4: metadata.name: is Armada's; here: policies[0].name" not in lines
    )  # what is wrong with it says more
    assert any(line.startswith("4: metadata.name: got 'Training'; allowed: lower-case") for line in lines)
    assert "6: spec.retryLimit: is Armada's; here: policies[0].retryLimit" in lines
    assert "9: spec.rules[0].onConditions: is Armada's; here: onReasons" in lines


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("kind: RetryPolicy", "1: policies[0]"),
        ("kind: RetryPolicy\nspec: [1]\nmetadata: 5", "1: kind: is Armada's"),
        ("apiVersion: armadaproject.io/v1\nname: p", "2: name: is Armada's"),
    ],
)
def test_manifest_without_much_in_it(content: str, line: str) -> None:
    assert any(text.startswith((line, "1: kind: is Armada's")) for text in told(content))


def test_field_of_armada_in_a_policy_file() -> None:
    rule = "{action: Retry, onCategory: gpu, phases: [Launch]}"
    content = f"policies:\n- name: p\n  rules:\n  - {rule}\nfailFast: true"
    assert told(content) == [
        f"4: policies[0].rules[0].onCategory: is Armada's; here: {CATEGORY}",
        "5: failFast: is Armada's; here: executor_config={'pod_launch_failure_retries': 0} of the task",
    ]


def test_kind_in_a_policy_file_makes_no_manifest_of_it() -> None:
    lines = told("kind: RetryPolicy\npolicies: [{name: p, defaultAction: Fail}]")
    assert len(lines) == 1
    assert lines[0].startswith("1: kind: is no field here; allowed: defaultPolicy, ")
