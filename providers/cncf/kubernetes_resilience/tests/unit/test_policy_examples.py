# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the pages about retry policies show: files that can be used, and what is decided with them."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.vocabulary import VOCABULARY
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action, AvoidNode
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import parse_policies
from airflow_resilience.retry_policy.engine import decide
from airflow_resilience.retry_policy.evidence import Evidence, Phase
from airflow_resilience.retry_policy.selection import TaskProfile, select
from breeze import policy_examples
from breeze.paths import ROOT

POLICY_BLOCK = re.compile(r"^```yaml policy[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)

BLOCKS = [
    pytest.param(match[1], id=f"{path.name}:{path.read_text()[: match.start()].count(chr(10)) + 1}")
    for path in sorted((ROOT / "docs").glob("polic*.md"))
    for match in POLICY_BLOCK.finditer(path.read_text())
]

RELAUNCH, FAIL = Action.RELAUNCH, Action.FAIL
NONE, PREFER, REQUIRE = AvoidNode.NONE, AvoidNode.PREFER, AvoidNode.REQUIRE

DECISIONS = {
    "drain": (RELAUNCH, "disruptions", "drain", PREFER, 0, 0),
    "spot-reclaim": (RELAUNCH, "spot", "reclaimed", NONE, 5, 10),
    "registry-outage": (RELAUNCH, "registry", "outage", NONE, 192, 240),
    "git-sync-dns": (RELAUNCH, "git-sync", "dns", NONE, 12, 15),
    "sidecar": (RELAUNCH, "sidecars", "database-proxy", PREFER, 8, 10),
    "out-of-memory": (FAIL, "memory", "limit-too-low", NONE, 0, 0),
    "running-drain": (RELAUNCH, "idempotent", "lost", PREFER, 10, 10),
    "running-out-of-memory": (RELAUNCH, "memory", "killed", PREFER, 10, 10),
    "bad-node": (RELAUNCH, "gpu", "broken-device", REQUIRE, 0, 0),
}
"""For each example of the page: action, policy, rule, node, shortest and longest delay in seconds."""


def test_there_are_policies_on_each_page():
    assert {block.id.partition(":")[0] for block in BLOCKS} == {
        "policies.md",
        "policy-examples.md",
        "policy-mapping.md",
    }


@pytest.mark.parametrize("text", BLOCKS)
def test_a_policy_of_a_page_can_be_used(text):
    policies = parse_policies(text, "policy.yaml", built_in(1, {"Error"}), VOCABULARY)
    assert policies.policies.keys() > {"built-in"}
    # Where it is demanded, the page says why.
    assert [line for line in policies.warnings if "avoidNode: is require: " not in line] == []
    assert len(policies.warnings) == text.count("avoidNode: require")


@pytest.fixture
def relaunches():
    """Give a function that counts relaunches: failures with these reasons, one after the other."""

    def count(text, reasons):
        policies, history = parse_policies(text, "policy.yaml", built_in(1, {"Error"})), []
        profile = TaskProfile(dag_id="etl", task_id="load", queue="q", pool="p", dag_tags=frozenset({"ml"}))
        for reason in reasons:
            classified = StateChangeReason.__members__.get(reason, StateChangeReason.WORKER_TERMINATION)
            context = ExecutionContext(StateChangeCategory.INFRASTRUCTURE, classified, ContextSource.EXECUTOR)
            evidence = Evidence(phase=Phase.LAUNCH, context=context, reasons=(reason,))
            history.append(decide(evidence, select(policies, profile), policies, history, lambda: 0.0))
        return Counter(decision.rule for decision in history if decision.action is RELAUNCH)

    return count


def block(text):
    return next(param.values[0] for param in BLOCKS if text in param.values[0])


def test_each_rule_of_the_first_example_reaches_its_limit(relaunches):
    text = block("name: registry\n        onReasons: [IMAGE_UNAVAILABLE]")
    assert relaunches(text, ["IMAGE_UNAVAILABLE"] * 20) == {"registry": 8}
    assert relaunches(text, ["WORKER_LOST"] * 20) == {"infrastructure": 3}
    assert relaunches(text, ["IMAGE_UNAVAILABLE", "WORKER_LOST"] * 20) == {"registry": 7, "infrastructure": 3}


def test_worked_case_of_the_limits(relaunches):
    mixed = ["PreemptionByScheduler", "OOMKilled", "Evicted"] * 10
    assert relaunches(block("name: infra\n"), mixed) == {"moved": 10, "out-of-memory": 3}


@pytest.fixture(scope="module")
def page():
    return policy_examples.PAGE.read_text()


@pytest.fixture(scope="module")
def explanations(page):
    return policy_examples.explain_examples(page)


def test_each_example_has_a_policy_and_a_pod(explanations):
    names = set(DECISIONS)
    assert set(explanations) == names
    assert {path.stem for path in policy_examples.PODS.iterdir()} == names


def test_examples_of_both_phases_show_output(page):
    shown = set(re.findall(r"^```text explain (\S+)\n.", page, re.MULTILINE))
    assert {"drain", "running-out-of-memory"} <= shown <= set(DECISIONS)


@pytest.mark.parametrize("name", DECISIONS)
def test_an_example_decides_what_the_page_says(explanations, name):
    answer = explanations[name].answer
    decision = answer.trace.decision
    found = (decision.action, decision.policy, decision.rule, decision.avoid_node)
    assert (*found, answer.shortest_delay, decision.delay) == pytest.approx(DECISIONS[name])


def test_the_page_shows_what_the_command_prints(page):
    assert page == policy_examples.with_current_output(page), "run: python -m breeze.policy_examples"
