# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What each part of a policy file is compiled to, and which values its fields take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from airflow_resilience.backoff import Backoff
from airflow_resilience.context import StateChangeCategory
from airflow_resilience.decision import UNLIMITED, Action, AvoidNode
from airflow_resilience.mutation import MemoryIncrease, Mutation
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.evidence import ConditionEvidence, Phase
from airflow_resilience.retry_policy.fields import allowed, fields_of, model_in, shown, type_at, type_of
from airflow_resilience.retry_policy.matchers import (
    ContainerScope,
    Matcher,
    OnCategories,
    OnContainer,
    OnExitCodes,
    OnPhases,
    OnPodConditions,
    OnReasons,
    OnTerminationMessage,
    Operator,
)
from airflow_resilience.retry_policy.patterns import Pattern
from airflow_resilience.retry_policy.rule import Policy, PolicySet, Rule, Selector
from airflow_resilience.retry_policy.schema import (
    BackoffFields,
    ExitCodeFields,
    PolicyFields,
    PolicyFile,
    RuleFields,
    SelectorFields,
)

FALLBACK = built_in(1, ("Error",))
ANY = ContainerScope()


def compile_rule(**fields: Any) -> Rule:
    return RuleFields.model_validate({"action": "Retry", **fields}).compile(0)


@pytest.mark.parametrize(
    ("fields", "matchers"),
    [
        ({"phases": ["Launch"]}, [OnPhases(frozenset({Phase.LAUNCH}))]),
        ({"phases": ["Execution", "Launch"]}, [OnPhases(frozenset(Phase))]),
        ({"containerName": "git-sync"}, [OnContainer("git-sync")]),
        ({"onCategories": ["TIMEOUT"]}, [OnCategories(frozenset({StateChangeCategory.TIMEOUT}))]),
        (
            {"onReasons": ["Evicted", "OOMKilled"]},
            [OnReasons(reasons=frozenset({"Evicted", "OOMKilled"}), containers=ANY)],
        ),
        (
            {
                "onPodConditions": [
                    {"type": "DisruptionTarget"},
                    {"type": "Ready", "status": "False", "reason": "X"},
                ]
            },
            [
                OnPodConditions(
                    (
                        ConditionEvidence(type="DisruptionTarget", status="True", reason=None),
                        ConditionEvidence(type="Ready", status="False", reason="X"),
                    )
                )
            ],
        ),
        (
            {"onExitCodes": {"operator": "In", "values": [143, 137]}},
            [OnExitCodes(operator=Operator.IN, values=frozenset({137, 143}), containers=ANY)],
        ),
        (
            {"onExitCodes": {"operator": "NotIn", "values": [0], "containerName": "base"}},
            [
                OnExitCodes(
                    operator=Operator.NOT_IN, values=frozenset({0}), containers=ContainerScope(name="base")
                )
            ],
        ),
        (
            {"onTerminationMessage": {"pattern": "no (space|room)"}},
            [OnTerminationMessage(pattern=Pattern("no (space|room)"), containers=ANY)],
        ),
        (
            {"onTerminationMessage": {"pattern": "x", "containerName": "base"}},
            [OnTerminationMessage(pattern=Pattern("x"), containers=ContainerScope(name="base"))],
        ),
    ],
)
def test_each_condition_becomes_a_matcher(fields: dict[str, Any], matchers: list[Matcher]) -> None:
    assert compile_rule(**fields).matchers == tuple(matchers)


def test_container_of_the_rule_is_that_of_conditions_which_name_none() -> None:
    rule = compile_rule(
        containerName="git-sync",
        includeInitContainers=False,
        onReasons=["Error"],
        onExitCodes={"operator": "In", "values": [1], "containerName": "base"},
        onTerminationMessage={"pattern": "x"},
    )
    git_sync = ContainerScope(name="git-sync", include_init=False)
    assert {type(matcher): matcher for matcher in rule.matchers} == {
        OnContainer: OnContainer("git-sync"),
        OnReasons: OnReasons(reasons=frozenset({"Error"}), containers=git_sync),
        OnExitCodes: OnExitCodes(
            operator=Operator.IN,
            values=frozenset({1}),
            containers=ContainerScope(name="base", include_init=False),
        ),
        OnTerminationMessage: OnTerminationMessage(pattern=Pattern("x"), containers=git_sync),
    }


def test_what_a_rule_changes() -> None:
    rule = compile_rule(
        phases=["Launch"],
        mutate={
            "after": 2,
            "resources": {"memory": {"factor": 1.5, "limit": "16Gi"}},
            "nodeSelector": {"karpenter.sh/capacity-type": "on-demand"},
            "tolerations": [
                {"key": "pool", "value": "large"},
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
            ],
            "priorityClassName": "batch.high",
        },
    )
    assert rule.mutates_after == 2
    assert rule.mutation == Mutation(
        memory=MemoryIncrease(1.5, "16Gi"),
        node_selector={"karpenter.sh/capacity-type": "on-demand"},
        tolerations=(
            {"key": "pool", "operator": "Equal", "value": "large"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
        ),
        priority_class_name="batch.high",
    )
    assert compile_rule(phases=["Launch"], mutate={"nodeSelector": {"a": ""}}).mutates_after == 1


@pytest.mark.parametrize(
    ("word", "action"), [("Retry", Action.RELAUNCH), ("Fail", Action.FAIL), ("Count", Action.COUNT)]
)
def test_actions(word: str, action: Action) -> None:
    assert compile_rule(phases=["Launch"], action=word).action is action
    policy = PolicyFields.model_validate({"name": "p", "defaultAction": word})
    assert policy.compile().default_action is action


def test_rule_without_anything_optional_leaves_it_to_its_policy() -> None:
    assert RuleFields.model_validate({"phases": ["Launch"], "action": "Fail"}).compile(4) == Rule(
        name="rules[4]", action=Action.FAIL, matchers=(OnPhases(frozenset({Phase.LAUNCH})),)
    )


def test_policy_with_everything() -> None:
    backoff = {"initialDelay": "1m30s", "multiplier": 3, "maxDelay": "1h", "jitter": 0}
    rule = {
        "name": "spot",
        "phases": ["Launch"],
        "action": "Retry",
        "retryLimit": UNLIMITED,
        "backoff": {"initialDelay": "0s"},
        "avoidNode": "require",
    }
    policy = PolicyFields.model_validate(
        {
            "name": "p",
            "retryLimit": 0,
            "backoff": backoff,
            "avoidNode": "prefer",
            "defaultAction": "Count",
            "rules": [rule],
        }
    )
    assert policy.compile() == Policy(
        name="p",
        retry_limit=0,
        backoff=Backoff(initial=90.0, multiplier=3.0, maximum=3600.0, jitter=0.0),
        avoid_node=AvoidNode.PREFER,
        default_action=Action.COUNT,
        rules=(
            Rule(
                name="spot",
                action=Action.RELAUNCH,
                matchers=(OnPhases(frozenset({Phase.LAUNCH})),),
                retry_limit=UNLIMITED,
                backoff=Backoff(initial=0.0, multiplier=2.0, maximum=300.0, jitter=0.2),
                avoid_node=AvoidNode.REQUIRE,
            ),
        ),
    )


def test_file_joins_the_policies_that_there_are_without_it() -> None:
    file = PolicyFile.model_validate(
        {
            "policies": [{"name": "p", "defaultAction": "Fail"}],
            "selection": [
                {"policy": "p", "queues": ["q"], "pools": ["a", "b"], "dagIds": ["etl_*"], "dagTags": ["t"]},
                {"policy": "built-in", "pools": ["a"]},
            ],
        }
    )
    assert file.compile("origin", FALLBACK) == PolicySet(
        policies={**FALLBACK.policies, "p": Policy(name="p", rules=(), default_action=Action.FAIL)},
        default="built-in",
        global_max_retries=10,
        selectors=(
            Selector(
                policy="p",
                queues=frozenset({"q"}),
                pools=frozenset({"a", "b"}),
                dag_ids=("etl_*",),
                dag_tags=frozenset({"t"}),
            ),
            Selector(policy="built-in", pools=frozenset({"a"})),
        ),
        origin="origin",
    )


def test_stated_default_and_brake_are_taken() -> None:
    file = PolicyFile.model_validate(
        {"defaultPolicy": "p", "globalMaxRetries": 0, "policies": [{"name": "p", "defaultAction": "Fail"}]}
    )
    policies = file.compile("origin", FALLBACK)
    assert (policies.default, policies.global_max_retries) == ("p", 0)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (BackoffFields, {"initialDelay": "5m"}),
        (BackoffFields, {"initialDelay": "1s", "maxDelay": "1s", "multiplier": 1, "jitter": 1}),
        (ExitCodeFields, {"operator": "NotIn", "values": [0]}),
        (ExitCodeFields, {"operator": "In", "values": [-1, *range(1, 255)]}),
        (PolicyFields, {"name": "a", "defaultAction": "Count"}),
        (PolicyFields, {"name": "a" * 63, "retryLimit": UNLIMITED, "defaultAction": "Count"}),
        (SelectorFields, {"policy": "a", "pools": ["P" * 256]}),
    ],
)
def test_extremes_are_allowed(model: type[BaseModel], fields: dict[str, Any]) -> None:
    assert isinstance(model.model_validate(fields), model)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (BackoffFields, {"initialDelay": "5m1s"}),
        (BackoffFields, {"initialDelay": "1s", "maxDelay": "24h1s"}),
        (BackoffFields, {"initialDelay": "1s", "maxDelay": "99999999h"}),
        (BackoffFields, {"initialDelay": "1s", "jitter": 1.01}),
        (BackoffFields, {"initialDelay": "1s", "jitter": float("nan")}),
        (BackoffFields, {"initialDelay": "1" * 70 + "s"}),
        (BackoffFields, {"initial_delay": "30s"}),
        (ExitCodeFields, {"operator": "NotIn", "values": list(range(256))}),
        (ExitCodeFields, {"operator": "NotIn", "values": [True]}),
        (ExitCodeFields, {"operator": "NotIn", "values": [2**31]}),
        (PolicyFields, {"name": "a" * 64, "defaultAction": "Count"}),
        (PolicyFields, {"name": "a\n", "defaultAction": "Count"}),
        (PolicyFields, {"name": "-a", "defaultAction": "Count"}),
        (PolicyFields, {"name": "a", "retryLimit": 1.0, "defaultAction": "Count"}),
        (RuleFields, {"action": "Retry", "includeInitContainers": True, "name": "x", "retryLimit": 1}),
        (SelectorFields, {"policy": "a"}),
        (SelectorFields, {"policy": "a", "pools": ["P" * 257]}),
        (SelectorFields, {"policy": "a", "pools": [""]}),
    ],
)
def test_values_that_are_not_allowed(model: type[BaseModel], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(fields)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true (a boolean)"),
        (143, "143"),
        ("a", "'a'"),
        ("two\nlines", r"'two\nlines'"),
        ([], "an empty list"),
        ([1], "a list"),
        ({}, "a mapping"),
        ("x" * 100, f"'{'x' * 59}..."),
    ],
)
def test_values_are_shown_in_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_every_field_says_in_words_what_it_allows() -> None:
    models: list[type[BaseModel]] = [PolicyFile]
    for model in models:
        for field in fields_of(model).values():
            assert allowed(type_of(field))
            nested = model_in(type_of(field))
            models += [nested] if nested else []
    assert len(models) == 14  # twelve, of which the backoff is in three places


def test_type_at_a_location() -> None:
    at = ("policies", 3, "rules", 0, "onPodConditions", 1, "status")
    assert allowed(type_at(PolicyFile, at)) == '"True", "False" or "Unknown", in quotes'
    assert type_at(PolicyFile, ()) is PolicyFile


def test_backoff_of_the_file_is_for_policies_that_state_none() -> None:
    own, common = {"initialDelay": "1s"}, {"initialDelay": "30s", "maxDelay": "24h"}
    rules = [{"phases": ["Launch"], "action": "Retry"}]
    file = PolicyFile.model_validate(
        {
            "defaultBackoff": common,
            "policies": [
                {"name": "plain", "rules": rules},
                {"name": "own", "rules": rules, "backoff": own},
                {"name": "rule", "rules": [{**rules[0], "backoff": own}]},
            ],
        }
    )
    compiled = file.compile("origin", FALLBACK).policies
    assert compiled["plain"].backoff == Backoff(initial=30, multiplier=2, maximum=86_400, jitter=0.2)
    assert compiled["own"].backoff == compiled["rule"].rules[0].backoff == BackoffFields(**own).compile()
    # What is built in has its own reasons to wait or not.
    assert compiled["built-in"] is FALLBACK.policies["built-in"]


@given(
    multiplier=st.floats(min_value=1, allow_infinity=False),
    attempt=st.integers(min_value=1, max_value=10**9),
    chance=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_longest_backoff_never_leaves_the_range_of_a_date(
    multiplier: float, attempt: int, chance: float
) -> None:
    fields = {"initialDelay": "24h", "maxDelay": "24h", "multiplier": multiplier, "jitter": 1}
    delay = BackoffFields.model_validate(fields).compile().delay(attempt, lambda: chance)
    assert datetime(9999, 12, 30, tzinfo=UTC) + timedelta(seconds=delay)
