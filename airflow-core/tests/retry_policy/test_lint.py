# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Warnings about what of a valid file can have no effect, or another one than is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import parse_policies
from airflow_resilience.retry_policy.fields import nearest
from airflow_resilience.retry_policy.lint import Vocabulary

FALLBACK = built_in(1, ("Error",))
WORDS = Vocabulary(
    reasons=frozenset({"OOMKilled", "Evicted", "ErrImagePull"}),
    reason_prefixes=("OutOf",),
    condition_types=frozenset({"DisruptionTarget", "PodScheduled"}),
    condition_reasons=frozenset({"PreemptionByScheduler"}),
    categories=frozenset({StateChangeCategory.INFRASTRUCTURE, StateChangeCategory.APPLICATION}),
    classified_reasons=frozenset({StateChangeReason.WORKER_TERMINATION, StateChangeReason.UNKNOWN}),
)
RULE = "policies:\n- name: p\n  rules:\n"


def warnings(content: str, vocabulary: Vocabulary | None = WORDS) -> list[str]:
    return [
        line.removeprefix("f.yaml:").replace(": warning: ", " ", 1)
        for line in parse_policies(content, "f.yaml", FALLBACK, vocabulary).warnings
    ]


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (
            "onReasons: [Evicted, OOMKiled]",
            ("onReasons[1]: got 'OOMKiled', which is no reason that is known (did you mean OOMKilled?)"),
        ),
        (
            "onReasons: [oomkilled]",
            ("onReasons[0]: got 'oomkilled', which is no reason that is known (did you mean OOMKilled?)"),
        ),
        (
            "onReasons: [worker_termination]",
            (
                "onReasons[0]: got 'worker_termination', which is no reason that is known"
                " (did you mean WORKER_TERMINATION?)"
            ),
        ),
        ("onReasons: [Zzz]", "onReasons[0]: got 'Zzz', which is no reason that is known"),
        (
            "onReasons: [DB_CONNECTION_ERROR]",
            "onReasons[0]: got 'DB_CONNECTION_ERROR', which no failure is classified as",
        ),
        (
            "onCategories: [USER_ACTION]",
            "onCategories[0]: got 'USER_ACTION', which no failure is classified as",
        ),
        (
            "onPodConditions: [{type: DisruptonTarget}]",
            (
                "onPodConditions[0].type: got 'DisruptonTarget', which is no condition that is known"
                " (did you mean DisruptionTarget?)"
            ),
        ),
        (
            "onPodConditions: [{type: DisruptionTarget, reason: PreemptionBySchedule}]",
            (
                "onPodConditions[0].reason: got 'PreemptionBySchedule', which is no reason of a condition"
                " that is known (did you mean PreemptionByScheduler?)"
            ),
        ),
    ],
)
def test_word_that_never_matches(condition: str, told: str) -> None:
    content = f"{RULE}  - action: Fail\n    {condition}\n"
    assert warnings(content) == [f"5 policies[0].rules[0].{told}"]
    assert warnings(content, None) == []


@pytest.mark.parametrize(
    "condition",
    [
        "onReasons: [OOMKilled, WORKER_TERMINATION, OutOfnvidia.com/gpu]",
        "onPodConditions: [{type: DisruptionTarget, reason: OutOfnvidia.com/gpu}]",
        "onCategories: [INFRASTRUCTURE]",
        "onPodConditions: [{type: example.com/ready}, {type: PodScheduled}]",
        "onPodConditions: [{type: DisruptionTarget, reason: PreemptionByScheduler}]",
        "onExitCodes: {operator: In, values: [1]}",
        "containerName: base",
    ],
)
def test_word_that_may_match(condition: str) -> None:
    assert warnings(f"{RULE}  - action: Fail\n    {condition}\n") == []


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("phases: [Launch, Execution]", "onReasons: [Evicted]"),
        ("phases: [Launch]", "phases: [Launch], onReasons: [Evicted]"),
        ("onReasons: [Evicted, OOMKilled]", "onReasons: [Evicted]"),
        ("onReasons: [Evicted, OOMKilled]", "onReasons: [Evicted], containerName: base"),
        ("onCategories: [INFRASTRUCTURE]", "onCategories: [INFRASTRUCTURE], phases: [Launch]"),
        ("onCategories: [INFRASTRUCTURE, APPLICATION]", "onReasons: [Evicted]"),
        (
            "onExitCodes: {operator: In, values: [1, 2]}",
            "onExitCodes: {operator: In, values: [1]}, phases: [Launch]",
        ),
        ("containerName: base", "containerName: base, phases: [Launch]"),
        (
            "onPodConditions: [{type: DisruptionTarget}]",
            "onPodConditions: [{type: DisruptionTarget}], onReasons: [Evicted]",
        ),
        ('onTerminationMessage: {pattern: "a"}', 'onTerminationMessage: {pattern: "a"}, phases: [Launch]'),
    ],
)
def test_rule_behind_one_that_matches_whatever_it_does(earlier: str, later: str) -> None:
    content = f"{RULE}  - {{action: Fail, {earlier}}}\n  - {{action: Count, {later}}}\n"
    told = "is never reached: policies[0].rules[0] matches all that is left for it"
    assert warnings(content) == [f"5 policies[0].rules[1]: {told}"]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("phases: [Launch]", "onReasons: [Evicted]"),
        ("phases: [Launch], onReasons: [Evicted]", "onReasons: [Evicted]"),
        ("onReasons: [Evicted]", "onReasons: [Evicted, OOMKilled]"),
        ("onReasons: [Evicted], includeInitContainers: false", "onReasons: [Evicted]"),
        ("onCategories: [INFRASTRUCTURE]", "onReasons: [Evicted]"),
        ("onExitCodes: {operator: NotIn, values: [1, 2]}", "onExitCodes: {operator: NotIn, values: [1]}"),
        ("containerName: base", "containerName: git-sync"),
    ],
)
def test_rule_that_may_be_reached(earlier: str, later: str) -> None:
    assert warnings(f"{RULE}  - {{action: Fail, {earlier}}}\n  - {{action: Count, {later}}}\n") == []


def test_default_action_behind_a_rule_that_always_matches() -> None:
    rule = "{action: Count, phases: [Launch, Execution]}"
    content = f"policies:\n- name: p\n  defaultAction: Fail\n  rules: [{rule}]\n"
    told = "is never reached: policies[0].rules[0] matches all that is left for it"
    assert warnings(content) == [f"3 policies[0].defaultAction: {told}"]


def test_many_rules_are_compared_with_those_right_before_them() -> None:
    rules = "".join(f"  - {{action: Fail, containerName: c{index}}}\n" for index in range(150))
    again = "  - {action: Count, containerName: c149}\n  - {action: Count, containerName: c0}\n"
    assert [line.split()[1] for line in warnings(RULE + rules + again)] == ["policies[0].rules[150]:"]


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (
            "retryLimit: 11, rules: [{action: Retry, phases: [Launch]}]",
            ["retryLimit: got 11, which is never reached: globalMaxRetries is 10"],
        ),
        (
            "rules: [{action: Retry, phases: [Launch], retryLimit: 11}]",
            ["rules[0].retryLimit: got 11, which is never reached: globalMaxRetries is 10"],
        ),
        (
            "retryLimit: 9, rules: [{action: Retry, containerName: a, retryLimit: -1}], defaultAction: Retry",
            [],
        ),
        (
            "retryLimit: 3, rules: [{action: Retry, phases: [Launch], retryLimit: 2}]",
            ["retryLimit: has no effect: every rule that says Retry has its own"],
        ),
        (
            "retryLimit: 3, backoff: {initialDelay: 1s}, avoidNode: prefer, defaultAction: Fail",
            [
                "retryLimit: has no effect: nothing in this policy says Retry",
                "backoff: has no effect: nothing in this policy says Retry",
                "avoidNode: has no effect: nothing in this policy says Retry",
            ],
        ),
        (
            "avoidNode: require, rules: [{action: Retry, phases: [Launch], avoidNode: require}]",
            [
                f"{place}: is require: Karpenter provisions no node for such a pod; prefer does not stop it"
                " from 1.5 on"
                for place in ("avoidNode", "rules[0].avoidNode")
            ],
        ),
        *(
            (
                (
                    f"{policy}rules: [{{action: Retry, phases: [Launch]{rule},"
                    f" mutate: {{after: {after}, nodeSelector: {{a: b}}}}}}]"
                ),
                [f"rules[0].mutate.after: got {after}, which is never reached: {told}"] if told else [],
            )
            for policy, rule, after, told in [
                ("", ", retryLimit: 2", 3, "its retryLimit is 2"),
                ("", ", retryLimit: 2", 2, None),
                ("retryLimit: 1, ", "", 2, "the policy's retryLimit is 1"),
                ("", ", retryLimit: -1", 11, "globalMaxRetries is 10"),
                ("", "", 10, None),
            ]
        ),
        (
            "rules: [{action: Count, phases: [Launch], retryLimit: 3, avoidNode: none}]",
            [
                "rules[0].retryLimit: has no effect: the action is Count",
                "rules[0].avoidNode: has no effect: the action is Count",
            ],
        ),
    ],
)
def test_setting_without_the_effect_that_is_meant(policy: str, told: list[str]) -> None:
    assert warnings(f"policies: [{{name: p, {policy}}}]") == [f"1 policies[0].{text}" for text in told]


def test_brake_is_no_reason_to_warn_of_limits() -> None:
    content = "globalMaxRetries: 0\npolicies: [{name: p, retryLimit: 5, defaultAction: Retry}]"
    assert warnings(content) == []


SELECTED = """\
defaultPolicy: last
policies:
- {name: own, rules: [{action: Fail, phases: [Launch]}]}
- {name: all, %s}
- {name: last, defaultAction: Count}
selection:
- {policy: own, queues: [gpu]}
- {policy: all, %s}
- {policy: last, queues: [gpu]}
"""


@pytest.mark.parametrize(
    ("decides", "about"),
    [
        ("rules: [{action: Fail, phases: [Launch, Execution]}]", "every failure"),
        ("defaultAction: Fail, rules: [{action: Fail, phases: [Execution]}]", "every failure"),
        ("defaultAction: Fail", "every failed launch"),
        ("rules: [{action: Fail, phases: [Launch]}]", "every failed launch"),
    ],
)
def test_policy_behind_one_that_decides_about_everything(decides: str, about: str) -> None:
    why = f"is never asked: selection[1] gives every task all, which decides about {about}"
    assert warnings(SELECTED % (decides, 'dagIds: ["etl_*", "*"]')) == [
        f"5 policies[2]: {why}",
        f"9 selection[2]: {why}",
    ]


def test_policy_behind_two_that_decide_about_one_phase_each() -> None:
    content = """\
policies:
- {name: starts, defaultAction: Fail}
- {name: runs, rules: [{action: Fail, phases: [Execution]}]}
- {name: both, rules: [{action: Count, containerName: a}]}
selection:
- {policy: starts, dagIds: ["*"]}
- {policy: built-in, pools: [gpu]}
- {policy: runs, dagIds: ["*"]}
- {policy: both, queues: [gpu]}
"""
    starts = "selection[0] gives every task starts, which decides about every failed launch"
    runs = "selection[2] gives every task runs, which decides about every loss of a running task"
    assert warnings(content) == [
        f"4 policies[2]: is never asked: {starts}, and {runs}",
        f"7 selection[1]: is never asked: {starts}",
        f"9 selection[3]: is never asked: {starts}, and {runs}",
    ]


def test_rule_about_running_tasks_is_reached_behind_a_default_action() -> None:
    content = """\
policies:
- {name: starts, defaultAction: Fail}
- {name: runs, rules: [{action: Retry, phases: [Execution]}]}
selection:
- {policy: starts, dagIds: ["*"]}
- {policy: runs, dagIds: ["*"]}
"""
    assert warnings(content) == []


def test_default_action_behind_a_rule_for_all_launches_is_never_reached() -> None:
    content = "policies: [{name: p, rules: [{action: Fail, phases: [Launch]}], defaultAction: Count}]"
    assert warnings(content) == [
        "1 policies[0].defaultAction: is never reached: policies[0].rules[0] matches all that is left for it"
    ]


@pytest.mark.parametrize(
    ("decides", "selects"),
    [
        ("defaultAction: Fail", 'dagIds: ["etl_*"]'),
        ("defaultAction: Fail", 'dagIds: ["*"], pools: [a]'),
        ("rules: [{action: Fail, phases: [Execution]}]", 'dagIds: ["*"]'),
    ],
)
def test_policy_that_may_be_asked(decides: str, selects: str) -> None:
    assert warnings(SELECTED % (decides, selects)) == []


def test_no_more_warnings_than_anybody_reads() -> None:
    rules = "".join(f"  - {{action: Fail, onReasons: [Zz{index}]}}\n" for index in range(300))
    assert len(warnings(RULE + rules)) == 100


def test_warning_names_file_line_and_place() -> None:
    policies = parse_policies(f"{RULE}  - {{action: Fail, onReasons: [Zzz]}}\n", "f.yaml", FALLBACK, WORDS)
    assert policies.warnings == (
        "f.yaml:4: warning: policies[0].rules[0].onReasons[0]: got 'Zzz', which is no reason that is known",
    )


@given(word=st.text(max_size=30), words=st.lists(st.text(max_size=10), max_size=5))
def test_nearest_word_is_one_of_them(word: str, words: list[str]) -> None:
    assert nearest(word, words) in {"", *(f" (did you mean {known}?)" for known in words)}
