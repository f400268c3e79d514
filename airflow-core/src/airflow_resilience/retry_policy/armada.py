# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Retry policies in the form of Armada: what its fields are called here.

A manifest is one policy. It is flat, as ``armadactl`` takes it, or has ``metadata`` and ``spec``.

.. seealso:: https://github.com/armadaproject/armada/blob/master/docs/retry_policies.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from airflow_resilience.retry_policy.marked_yaml import Location

FIELDS: Final[Mapping[str, str]] = {
    "onCategory": "onCategories (those of AIP-97), or what the category is made of",
    "onFailureCategory": "onCategories (those of AIP-97), or what the category is made of",
    "onSubcategory": "onReasons",
    "onConditions": "onReasons",
    "onPodError": "onTerminationMessage without containerName",
    "antiAffinity": "avoidNode",
    "affinity": "avoidNode of the rule for avoidSameNode",
    "static": "factor",
    "defaultPolicyName": "defaultPolicy",
    "enabled": "[kubernetes_resilience] retry_policy_file; a file that is named is in force",
    "retry_policies": "selection, with queues",
    "failFast": "executor_config={'pod_launch_failure_retries': 0} of the task",
}
"""Fields that have another name here, by Armada's name."""
_SHELL: Final = ("apiVersion", "kind", "metadata", "spec")
_Problems = Iterator[tuple[Location, str]]


def is_manifest(data: object) -> bool:
    """Say whether the contents of a file are a retry policy in Armada's form."""
    if not isinstance(data, dict) or "policies" in data:
        return False
    return data.get("kind") == "RetryPolicy" or str(data.get("apiVersion")).startswith("armadaproject.io/")


def find_differences(data: Mapping[str, Any], check: Callable[[object], Mapping[Location, str]]) -> _Problems:
    """
    Say how to turn a manifest into a policy file.

    :param check: finds what is wrong with the contents of a policy file
    """
    for field in ("apiVersion", "kind"):
        if field in data:
            yield (field,), "is Armada's; here: nothing, a policy is an item of policies"
    policy: dict[str, Any] = {}
    places: dict[str, Location] = {}
    for location, fields in _holders(data):
        for name, value in fields.items():
            policy[name], places[name] = value, (*location, name)
    for name, place in places.items():
        if name not in FIELDS:
            yield place, f"is Armada's; here: policies[0].{name}"
    for location, text in check({"policies": [policy]}).items():
        match location:
            case ("policies", 0, str(name), *inside):
                yield (*places.get(name, (name,)), *inside), text
            case _:
                yield (), text


def _holders(data: Mapping[str, Any]) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """Return the mappings that hold the fields of the policy."""
    yield (), {name: value for name, value in data.items() if name not in _SHELL}
    match data.get("metadata"):
        case {"name": name}:
            yield ("metadata",), {"name": name}
    if isinstance(spec := data.get("spec"), dict):
        yield ("spec",), spec
