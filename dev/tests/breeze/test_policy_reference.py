# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The reference says what the schema does, and its examples are valid."""

from __future__ import annotations

import re

import pytest
import yaml
from pydantic import BaseModel

from airflow_resilience.retry_policy import schema
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import parse_policies
from airflow_resilience.retry_policy.fields import fields_of
from breeze.policy_reference import EXAMPLES, render_reference

MODELS = [
    member
    for member in vars(schema).values()
    if isinstance(member, type)
    and issubclass(member, schema.FileMapping)
    and member is not schema.FileMapping
]


@pytest.mark.parametrize("model", MODELS)
def test_every_mapping_has_a_valid_example(model: type[BaseModel]) -> None:
    assert isinstance(model.model_validate(yaml.safe_load(EXAMPLES[model])), model)


def test_example_of_the_file_loads() -> None:
    policies = parse_policies(EXAMPLES[schema.PolicyFile], "example", built_in(1, ("Error",)))
    assert {*policies.policies} == {"built-in", "standard", "gpu"}


@pytest.mark.parametrize("model", MODELS)
def test_every_field_has_a_row_with_a_meaning(model: type[BaseModel]) -> None:
    page = render_reference()
    for name in fields_of(model):
        rows = re.findall(rf"^\| `{name}` \| (.+) \| (.*) \| (.+) \|$", page, re.MULTILINE)
        assert rows, name
        assert all(meaning.endswith(".") for _, _, meaning in rows), name


@pytest.mark.parametrize(
    "row",
    [
        "| `globalMaxRetries` | a whole number from 0 | `10` | Relaunches for one try of a task,",
        "| `policies` | see [`policies`](#policies) | **required** |",
        "| `maxDelay` | a duration such as 30s, 5m or 1m30s, at most 24h | `5m` |",
        "| `jitter` | a number from 0 (none) to 1 (all of it) | `0.2` |",
        "| `avoidNode` | none, prefer, require | `none` |",
        "| `avoidNode` | none, prefer, require |  |",
        '| `status` | "True", "False" or "Unknown", in quotes | `"True"` |',
        "| `includeInitContainers` | true, false | `true` |",
        "| `operator` | In, NotIn | **required** |",
    ],
)
def test_rows(row: str) -> None:
    assert f"\n{row}" in render_reference()


def test_sections_are_in_the_order_of_a_file_and_there_once() -> None:
    headings = re.findall("^#+ (.+)$", render_reference(), re.MULTILINE)
    assert headings == [
        "Policy file reference",
        "The file",
        "`backoff`",
        "`policies`",
        "`rules`",
        "`onExitCodes`",
        "`onPodConditions`",
        "`onTerminationMessage`",
        "`mutate`",
        "`resources`",
        "`memory`",
        "`tolerations`",
        "`selection`",
    ]


def test_links_lead_to_sections() -> None:
    page = render_reference()
    targets = set(re.findall(r"\]\(#(\w+)\)", page))
    headings = {heading.lower() for heading in re.findall(r"^## `(\w+)`$", page, re.MULTILINE)}
    assert targets == headings


def test_blocks_of_yaml_are_closed_and_not_indented() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)\n```$", render_reference(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == len(MODELS)
    assert all(not block.startswith(" ") for block in blocks)
