# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pages of the site that are made from the code."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from breeze.paths import ROOT
from breeze.policy_pages import render_causes, render_command_line
from breeze.steps import run_tool


@dataclass
class FakeArgument:
    flags: tuple[str, ...]
    options: dict[str, Any]

    def add_to_parser(self, parser: ArgumentParser) -> None:
        parser.add_argument(*self.flags, **self.options)


@dataclass
class FakeCommand:
    name: str
    args: tuple[FakeArgument, ...] = ()
    help: str = "Do it"
    description: str | None = None
    epilog: str | None = None


@dataclass
class FakeGroup:
    name: str
    subcommands: list[Any] = field(default_factory=list)


def test_causes_keep_their_order_and_stay_in_their_cells():
    row = SimpleNamespace(
        name="second",
        category="A",
        reason="B",
        why="In|out,\n  by ``word``.",
        url="https://example.com/x",
        launch_only=False,
        node_bound=False,
    )
    first = SimpleNamespace(**{**vars(row), "name": "first", "launch_only": True, "node_bound": True})
    *_, one, two = render_causes([first, row]).splitlines()
    assert one.startswith("| `first` | `A` | `B` | Of launches only. Node-bound. In")
    assert two == "| `second` | `A` | `B` | In\\|out, by `word`. [more](https://example.com/x) |"


def test_the_page_about_policies_names_the_categories_that_pods_show():
    (sentence,) = re.findall(
        r"\*category\* \((.*?)\)", (ROOT / "docs" / "policies.md").read_text(), re.DOTALL
    )
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
    page = (ROOT / "docs" / "policy-mapping.md").read_text()
    (section,) = (part for part in page.split("\n## ") if part.startswith(f"{heading}\n"))
    named = " ".join(re.findall(r"^(?:### |\| )(.*?)(?: \||$)", section, re.MULTILINE))
    assert fields - set(re.findall(r"\w+", named)) == set()


def test_commands_of_groups_are_named_in_full():
    page = render_command_line([FakeGroup("ours", [FakeGroup("policy", [FakeCommand("lint")])])], {})
    assert "\n## airflow ours policy lint\n\nDo it\n\n```text\nusage: airflow ours policy lint [-h]" in page


@pytest.mark.parametrize("columns", ["40", "400"])
def test_the_help_is_as_wide_as_the_page(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    options = [FakeArgument((f"--option-{number}",), {"help": "x" * 60}) for number in range(9)]
    command = FakeCommand(
        "explain", tuple(options), description="What it does.", epilog="exit codes:\n  0  fine"
    )
    page = render_command_line([command], {})
    assert 80 < max(map(len, page.splitlines())) <= 100
    assert "What it does." in page
    assert "exit codes:\n  0  fine\n```\n" in page


def test_each_page_is_made_from_the_code_itself(tmp_path):
    assert run_tool("breeze.policy_pages", tmp_path) == 0
    pages = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(pages) == {"policy-reference.md", "causes.md", "command-line.md"}
    assert all(page.startswith("# ") for page in pages.values())
    assert "onExitCodes" in pages["policy-reference.md"]
    assert "| `WORKER_TERMINATION` |" in pages["causes.md"]
    assert "airflow kubernetes-resilience explain" in pages["command-line.md"]
    for name in ("airflow-resilience explain", "airflow-resilience show", "kubectl airflow-explain"):
        assert f"\n## {name}\n" in pages["command-line.md"]
        assert f"usage: {name} [-h]" in pages["command-line.md"]
