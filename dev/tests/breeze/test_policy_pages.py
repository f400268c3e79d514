# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pages that are made from the code say what it does, and others name what there is."""

from __future__ import annotations

import re

import pytest
import yaml
from kubernetes import client
from pydantic import BaseModel

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow_resilience.retry_policy import schema
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import parse_policies
from airflow_resilience.retry_policy.fields import fields_of
from breeze.docs import DOCS, made_pages
from breeze.provider_info import provider_info

MODELS = [model for model in schema.FileMapping.__subclasses__() if model.__module__ == schema.__name__]
EXAMPLES = dict(
    re.findall(
        r"^<!-- (\w+) -->\n\n```yaml\n(.*?)^```$",
        (DOCS / "policy-reference.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)


@pytest.fixture(scope="module")
def pages():
    return made_pages()


@pytest.mark.parametrize("model", MODELS)
def test_every_mapping_has_a_valid_example(model: type[BaseModel]) -> None:
    assert isinstance(model.model_validate(yaml.safe_load(EXAMPLES[model.__name__])), model)


def test_example_of_the_file_loads() -> None:
    policies = parse_policies(EXAMPLES["PolicyFile"], "example", built_in(1, ("Error",)))
    assert {*policies.policies} == {"built-in", "standard", "gpu"}


@pytest.mark.parametrize("model", MODELS)
def test_every_field_has_a_row_with_a_meaning(pages, model: type[BaseModel]) -> None:
    for name in fields_of(model):
        row = rf"^\| `{name}` \| (.+) \| (.*) \| (.+) \|$"
        rows = re.findall(row, pages["policy-reference.md"], re.MULTILINE)
        assert rows, name
        assert all(meaning.endswith(".") for _, _, meaning in rows), name


ROWS = """
| `globalMaxRetries` | a whole number from 0 | `10` | Relaunches for one try of a task,
| `policies` | see [`policies`](#policies) | **required** |
| `maxDelay` | a duration such as 30s, 5m or 1m30s, at most 24h | `5m` |
| `jitter` | a number from 0 (none) to 1 (all of it) | `0.2` |
| `avoidNode` | none, prefer, require | `none` |
| `avoidNode` | none, prefer, require |  |
| `status` | "True", "False" or "Unknown", in quotes | `"True"` |
| `includeInitContainers` | true, false | `true` |
| `operator` | In, NotIn | **required** |
"""


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_rows(pages, row: str) -> None:
    assert f"\n{row}" in pages["policy-reference.md"]


def test_causes_keep_their_order_and_stay_in_their_cells(pages):
    rows = re.findall(r"^\| `(.+?)` \|.*\) \|$", pages["causes.md"], re.MULTILINE)
    assert rows == [cause.name for cause in TABLE]
    cells = [
        re.split(r"(?<!\\)\|", line) for line in pages["causes.md"].splitlines() if line.startswith("| `")
    ]
    assert {len(row) for row in cells} == {6}


@pytest.mark.parametrize(
    "name", ["airflow kubernetes-resilience explain", "airflow-resilience show", "kubectl airflow-explain"]
)
def test_commands_are_named_in_full_and_fit_on_the_page(pages, name):
    page = pages["command-line.md"]
    assert f"\n## {name}\n" in page
    assert f"usage: {name} [-h]" in page
    assert max(map(len, page.splitlines())) <= 100


def test_the_reference_of_options_says_everything_about_an_option(pages):
    page = pages["provider/configurations-ref.md"]
    ((section, content),) = provider_info()["config"].items()
    assert f"\n## [{section}]\n" in page
    for name, option in content["options"].items():
        (facts,) = re.findall(rf"^### {name}\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL)
        assert " ".join(option["description"].split()).replace("``", "`") in " ".join(facts.split())
        assert f"| Default | `{option['default']}` |" in facts or option["default"] is None
        assert f"| Type | `{option['type']}` |" in facts
        assert f"| Environment variable | `AIRFLOW__{section.upper()}__{name.upper()}` |" in facts


def test_the_page_about_policies_names_the_categories_that_pods_show():
    (sentence,) = re.findall(r"\*category\*\s+\((.*?)\)", (DOCS / "policies.md").read_text(), re.DOTALL)
    assert set(re.findall(r"\w+", sentence.replace(" or ", " "))) == {cause.category for cause in TABLE}


JOB = [
    client.V1JobSpec,
    client.V1PodFailurePolicy,
    client.V1PodFailurePolicyRule,
    client.V1PodFailurePolicyOnExitCodesRequirement,
    client.V1PodFailurePolicyOnPodConditionsPattern,
]
# Those that are called the same here, and those that are not.
ARMADA = {
    *("name", "rules", "action", "defaultAction", "retryLimit", "globalMaxRetries"),
    *("backoff", "defaultBackoff", "onExitCodes", "onTerminationMessage", "containerName"),
    *("onCategory", "onFailureCategory", "onSubcategory", "onConditions", "onPodError", "antiAffinity"),
    *("mutate", "affinity", "avoidSameNode", "resources", "memory", "static", "factor"),
    *("defaultPolicyName", "enabled", "retry_policies", "failFast"),
}


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("A Kubernetes Job", {name for model in JOB for name in model.attribute_map.values()}),
        ("Armada", ARMADA),
    ],
)
def test_the_comparison_has_every_field(heading, fields):
    page = (DOCS / "policy-mapping.md").read_text()
    (section,) = (part for part in page.split("\n## ") if part.startswith(f"{heading}\n"))
    named = " ".join(re.findall(r"^(?:### |\| )(.*?)(?: \||$)", section, re.MULTILINE))
    assert fields - set(re.findall(r"\w+", named)) == set()
