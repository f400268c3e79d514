# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A policy file is loaded, or every mistake in it is told at once, with its place and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import MAX_SIZE, PolicyFileError, parse_policies
from airflow_resilience.retry_policy.rule import PolicySet

FALLBACK = built_in(1, ("Error",))

#: Every field, without the licence: the first line of the text is that of ``defaultPolicy``.
VALID = Path(__file__).with_name("policies.yaml").read_text().split("\n", maxsplit=2)[2]

NOT_RE2 = "not a regular expression of RE2, which has no look-around and no back-references"
NAME = "lower-case letters, digits and - (not first or last), at most 63"
TEXT = "text, at most 256 characters; in quotes if it is like a number or yes"
RULE_FIELDS = (
    "name, phases, onExitCodes, onPodConditions, onReasons, onCategories, onTerminationMessage,"
    " containerName, includeInitContainers, action, retryLimit, backoff, avoidNode, mutate"
)
RULE = "policies[0].rules[0]"
FILE_FIELDS = "defaultPolicy, globalMaxRetries, defaultBackoff, policies, selection"


def parse(content: str | bytes) -> PolicySet:
    return parse_policies(content, "f.yaml", FALLBACK)


def complaint(content: str | bytes) -> str:
    with pytest.raises(PolicyFileError) as error:
        parse(content)
    return str(error.value)


def test_valid_file_loads() -> None:
    policies = parse(VALID)
    assert list(policies.policies) == ["built-in", "standard", "gpu"]
    assert policies.default == "standard"
    assert policies.origin == "f.yaml"
    assert [rule.name for rule in policies.policies["standard"].rules] == ["spot", "rules[1]"]


@pytest.mark.parametrize(
    "content",
    [
        VALID.encode(),
        b"\xef\xbb\xbf" + VALID.encode(),
        VALID.replace("\n", "\r\n"),
        f"---\n{VALID}...\n",
        yaml.safe_dump(yaml.safe_load(VALID)),
    ],
    ids=["bytes", "byte order mark", "Windows line ends", "document marks", "dumped"],
)
def test_form_of_the_file_does_not_matter(content: str | bytes) -> None:
    assert parse(content) == parse(VALID)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("operator: In,", "operator: in,", f"12: {RULE}.onExitCodes.operator: got 'in'; allowed: In, NotIn"),
        ("operator: In, ", "", f"12: {RULE}.onExitCodes.operator: is missing; allowed: In, NotIn"),
        (
            "operator: In, ",
            "operater: In, operator: In, ",
            (
                f"12: {RULE}.onExitCodes.operater: is no field here (did you mean operator?); allowed: "
                "containerName, operator, values"
            ),
        ),
        (
            "[137, 143]",
            "[137, 0]",
            f"12: {RULE}.onExitCodes.values: got 0; allowed with In: other exit codes (0 is no failure)",
        ),
        (
            "[137, 143]",
            "[137, 143, 137]",
            f"12: {RULE}.onExitCodes.values: got 137 more than once; allowed: each value once",
        ),
        (
            "[137, 143]",
            "[]",
            (
                f"12: {RULE}.onExitCodes.values: got an empty list; allowed: a list of 1 to 255 exit codes "
                "(whole numbers)"
            ),
        ),
        (
            "[137, 143]",
            "[137, '143']",
            f"12: {RULE}.onExitCodes.values[1]: got '143'; allowed: an exit code (a whole number)",
        ),
        (
            '"True"',
            "True",
            (
                f'13: {RULE}.onPodConditions[0].status: got true (a boolean); allowed: "True", "False" or '
                '"Unknown", in quotes'
            ),
        ),
        ("type: DisruptionTarget, ", "", f"13: {RULE}.onPodConditions[0].type: is missing; allowed: {TEXT}"),
        (
            "[Launch, Execution]",
            "[launch]",
            f"11: {RULE}.phases[0]: got 'launch'; allowed: Launch, Execution",
        ),
        (
            "[Launch, Execution]",
            "Launch",
            f"11: {RULE}.phases: got 'Launch'; allowed: a list with one or more of: Launch, Execution",
        ),
        (
            "[Evicted, ErrImagePull]",
            "",
            f"14: {RULE}.onReasons: got nothing; allowed: a value, or to leave it out",
        ),
        (
            "[Evicted, ErrImagePull]",
            "[Evicted, no]",
            f"14: {RULE}.onReasons[1]: got false (a boolean); allowed: {TEXT}",
        ),
        (
            "[INFRASTRUCTURE]",
            "[INFRA]",
            (
                f"15: {RULE}.onCategories[0]: got 'INFRA'; allowed: INFRASTRUCTURE, APPLICATION, TIMEOUT, "
                "USER_ACTION"
            ),
        ),
        (
            "no space left",
            "no (space",
            f"16: {RULE}.onTerminationMessage.pattern: got 'no (space'; {NOT_RE2}: missing ): no (space",
        ),
        (
            "containerName: git-sync",
            "containerName: Git",
            f"17: {RULE}.containerName: got 'Git'; allowed: {NAME}",
        ),
        (
            "includeInitContainers: false",
            "includeInitContainers: 'false'",
            f"18: {RULE}.includeInitContainers: got 'false'; allowed: true, false",
        ),
        ("action: Retry", "action: retry", f"19: {RULE}.action: got 'retry'; allowed: Retry, Fail, Count"),
        ("        action: Retry\n", "", f"10: {RULE}.action: is missing; allowed: Retry, Fail, Count"),
        (
            "retryLimit: -1",
            "retryLimit: -2",
            f"20: {RULE}.retryLimit: got -2; allowed: a whole number from 0, or -1 (unlimited)",
        ),
        (
            "retryLimit: -1",
            "retryLimit: unlimited",
            f"20: {RULE}.retryLimit: got 'unlimited'; allowed: a whole number from 0, or -1 (unlimited)",
        ),
        (
            "initialDelay: 10s",
            "initialDelay: 10",
            (
                "6: policies[0].backoff.initialDelay: got 10; allowed: a duration such as 30s, 5m or "
                "1m30s, at most 24h"
            ),
        ),
        (
            "initialDelay: 10s",
            "initialDelay: 10 seconds",
            (
                "6: policies[0].backoff.initialDelay: got '10 seconds'; allowed: a duration such as 30s, "
                "5m or 1m30s, at most 24h"
            ),
        ),
        (
            "initialDelay: 10s",
            "initialDelay: 10m",
            "6: policies[0].backoff: got initialDelay 10m; allowed: no more than maxDelay, which is 5m",
        ),
        (
            "multiplier: 2",
            "multiplier: 0.5",
            "6: policies[0].backoff.multiplier: got 0.5; allowed: a number from 1",
        ),
        (
            "multiplier: 2",
            "multiplier: .inf",
            "6: policies[0].backoff.multiplier: got inf; allowed: a number from 1",
        ),
        (
            "jitter: 0.2",
            "jitter: 20%",
            "6: policies[0].backoff.jitter: got '20%'; allowed: a number from 0 (none) to 1 (all of it)",
        ),
        (
            "avoidNode: prefer",
            "avoidNode: never",
            "7: policies[0].avoidNode: got 'never'; allowed: none, prefer, require",
        ),
        ("Count", "count", "8: policies[0].defaultAction: got 'count'; allowed: Retry, Fail, Count"),
        (
            "defaultPolicy: standard",
            "defaultPolicy: standrd",
            (
                "1: defaultPolicy: got 'standrd', which is no policy (did you mean standard?); allowed: "
                "built-in, gpu, standard"
            ),
        ),
        (
            "policy: gpu",
            "policy: tpus",
            "28: selection[0].policy: got 'tpus', which is no policy; allowed: built-in, gpu, standard",
        ),
        (
            "globalMaxRetries: 10",
            "globalMaxRetries: -1",
            "2: globalMaxRetries: got -1; allowed: a whole number from 0",
        ),
        (
            "globalMaxRetries: 10",
            "globalMaxRetires: 10",
            f"2: globalMaxRetires: is no field here (did you mean globalMaxRetries?); allowed: {FILE_FIELDS}",
        ),
        (
            "onReasons: [OOMKilled]",
            "onReason: [OOMKilled]",
            (
                "23: policies[0].rules[1].onReason: is no field here (did you mean onReasons?); allowed: "
                f"{RULE_FIELDS}"
            ),
        ),
        (
            "onReasons: [OOMKilled]",
            "retryLimit: 1",
            (
                "23: policies[0].rules[1]: has no condition; allowed: one or more of phases, onExitCodes, "
                "onPodConditions, onReasons, onCategories, onTerminationMessage, containerName"
                " (for all failed launches there is defaultAction)"
            ),
        ),
        (
            "        action: Fail\n",
            "        action: Fail\n        name: spot\n",
            f"25: policies[0].rules[1].name: got 'spot', the name of {RULE}; allowed: a name of its own",
        ),
        (
            "    retryLimit: 3\n",
            "    retryLimit: 3\n    retryLimit: 4\n",
            "6: policies[0].retryLimit: is there twice, first in line 5",
        ),
        (
            "name: gpu\n    defaultAction: Retry",
            "name: gpu",
            "25: policies[1]: decides nothing; allowed: rules, defaultAction, or both",
        ),
    ],
)
def test_each_mistake_is_told_in_one_line(old: str, new: str, told: str) -> None:
    assert old in VALID
    assert complaint(VALID.replace(old, new, 1)) == f"f.yaml:{told}"


def test_what_cannot_be_a_name_is_not_offered_as_the_name_of_a_policy() -> None:
    assert complaint(VALID.replace("- name: gpu", r'- name: "gpu\n"', 1)).split("\n") == [
        rf"f.yaml:25: policies[1].name: got 'gpu\n'; allowed: {NAME}",
        "f.yaml:28: selection[0].policy: got 'gpu', which is no policy; allowed: built-in, standard",
    ]


KEY = "the key of a label, such as karpenter.sh/capacity-type"
VALUE = "the value of a label, in quotes if it is like a number or yes"


@pytest.mark.parametrize(
    ("mutate", "path", "told"),
    [
        (
            "{}",
            "",
            (
                "changes nothing; allowed: one or more of resources, nodeSelector, tolerations,"
                " priorityClassName"
            ),
        ),
        ("{after: 0, nodeSelector: {a: b}}", ".after", "got 0; allowed: a whole number from 1"),
        (
            "{resources: {memory: {factor: 1, limit: 1Gi}}}",
            ".resources.memory.factor",
            "got 1; allowed: a number above 1, such as 1.5, at most 100",
        ),
        *(
            (
                f"{{resources: {{memory: {{factor: 2, limit: {limit}}}}}}}",
                ".resources.memory.limit",
                (
                    f"got {told}; allowed: a quantity of memory such as 16Gi or 512M; in quotes if it has no"
                    " suffix"
                ),
            )
            for limit, told in [("16GB", "'16GB'"), ("0Gi", "'0Gi'"), ("1024", "1024"), ("500m", "'500m'")]
        ),
        ("{resources: {memory: {factor: 2}}}", ".resources.memory.limit", None),
        (
            "{resources: {memory: {static: 1Gi, limit: 2Gi, factor: 2}}}",
            ".resources.memory.static",
            "is no field here; allowed: factor, limit",
        ),
        ("{nodeSelector: {-a: b}}", ".nodeSelector", f"got the key '-a'; allowed: {KEY}"),
        ("{nodeSelector: {a: true}}", ".nodeSelector", f"got true (a boolean) for a; allowed: {VALUE}"),
        ("{nodeSelector: {a: two words}}", ".nodeSelector", f"got 'two words' for a; allowed: {VALUE}"),
        ("{nodeSelector: {}}", ".nodeSelector", None),
        ("{tolerations: [{key: a b, value: c}]}", ".tolerations[0].key", f"got 'a b'; allowed: {KEY}"),
        (
            "{tolerations: [{key: a, operator: Exists, value: b}]}",
            ".tolerations[0]",
            "has a value; allowed with Exists: none",
        ),
        (
            "{tolerations: [{value: b}]}",
            ".tolerations[0]",
            "has no key; allowed without one: operator Exists",
        ),
        (
            "{tolerations: [{key: a, value: b, tolerationSeconds: 3}]}",
            ".tolerations[0]",
            "has tolerationSeconds; allowed with them: effect NoExecute",
        ),
        ("{priorityClassName: High}", ".priorityClassName", None),
    ],
)
def test_a_change_that_no_pod_could_have_is_refused(mutate: str, path: str, told: str | None) -> None:
    rule = f"{{action: Retry, phases: [Launch], mutate: {mutate}}}"
    said = complaint(f"policies: [{{name: p, rules: [{rule}]}}]")
    assert said.startswith(f"f.yaml:1: policies[0].rules[0].mutate{path}: {told or ''}")
    assert told is None or said.endswith(told)


def test_what_is_not_launched_again_is_not_changed() -> None:
    rule = "{action: Count, phases: [Launch], mutate: {nodeSelector: {a: b}}}"
    assert complaint(f"policies: [{{name: p, rules: [{rule}]}}]") == (
        "f.yaml:1: policies[0].rules[0]: has mutate with action Count; allowed with mutate: Retry"
    )


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = (
        VALID.replace("defaultPolicy: standard", "defaultPolicy: standrd")
        .replace("retryLimit: 3", "retryLimit: 3\n    retryLimit: three")
        .replace("operator: In", "operator: Out")
        .replace("name: gpu", "name: standard")
        .replace("dagIds", "dags")
    )
    with pytest.raises(PolicyFileError) as error:
        parse(text)
    assert [(problem.line, problem.location) for problem in error.value.problems] == [
        (1, ("defaultPolicy",)),
        (6, ("policies", 0, "retryLimit")),
        (13, ("policies", 0, "rules", 0, "onExitCodes", "operator")),
        (26, ("policies", 1, "name")),
        (29, ("selection", 0, "dags")),
        (29, ("selection", 0, "policy")),
    ]
    assert len(str(error.value).splitlines()) == 6


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "f.yaml: is empty; a file without policies is not named at all"),
        ("# nothing", "f.yaml: is empty; a file without policies is not named at all"),
        ("[]", f"f.yaml:1: got an empty list; allowed: a mapping with {FILE_FIELDS}"),
        ("\n\nx", f"f.yaml:3: got 'x'; allowed: a mapping with {FILE_FIELDS}"),
        ("policies:", "f.yaml:1: policies: got nothing; allowed: a value, or to leave it out"),
        ("a: b: c", "f.yaml:1: mapping values are not allowed here"),
        (b"policies:\n- \xff", "f.yaml:2: not UTF-8: the byte 0xFF"),
        (VALID.encode("utf-16"), "f.yaml:1: not UTF-8: the byte 0xFF"),
        ("x" * (MAX_SIZE + 1), "f.yaml: is too long; allowed: 256 KiB"),
        (b"x" * (MAX_SIZE + 1), "f.yaml: is too long; allowed: 256 KiB"),
        ("a: *x", "f.yaml:1: an alias is not allowed in this file"),
        (
            f"{VALID}---\n{VALID}",
            "f.yaml:29: but found another document (expected a single document in the stream in line 1)",
        ),
    ],
)
def test_file_that_is_wrong_as_a_whole(content: str | bytes, told: str) -> None:
    assert complaint(content) == told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("a.b: 1", "f.yaml:1: ['a.b']: is no field here;"),
        (r'"x\ny": 1', r"f.yaml:1: ['x\ny']: is no field here;"),
        (f"{'x' * 1000}: 1", f"f.yaml:1: ['{'x' * 59}...]: is no field here;"),
        ("é: 1", "f.yaml:1: ['é']: is no field here;"),
    ],
)
def test_strange_keys_are_shown_in_one_short_line(entry: str, told: str) -> None:
    assert complaint(f"{entry}\n{VALID}").startswith(told)


@pytest.mark.parametrize("name", ["built-in", "infrastructure"])
def test_name_of_what_is_built_in_is_taken(name: str) -> None:
    told = f"got '{name}', which there is without this file too; allowed: another name"
    text = f"policies: [{{name: {name}, defaultAction: Fail}}]"
    assert complaint(text) == f"f.yaml:1: policies[0].name: {told}"


def test_rules_of_different_policies_may_have_the_same_name() -> None:
    rule = "{name: r, phases: [Launch], action: Fail}"
    policies = parse(f"policies: [{{name: a, rules: [{rule}]}}, {{name: b, rules: [{rule}]}}]").policies
    assert policies["a"].rules == policies["b"].rules


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(?=a)b", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<!"),
        (r"(a)\\1", r"invalid escape sequence: \1"),
        ("(?>a)b", "invalid perl operator: (?>"),
        ("x{1001}", "invalid repetition size: {1001}"),
        ("(" * 90 + "x" + "){1000}" * 90, "invalid repetition size: {1000}"),
        (r"\\pL{1000}", "pattern too large - compile failed"),
    ],
)
def test_pattern_that_needs_another_engine_is_refused(pattern: str, told: str) -> None:
    shown = complaint(VALID.replace("no space left", pattern))
    assert shown.endswith(f"; {NOT_RE2}: {told}")


def test_only_the_first_of_many_problems_are_shown() -> None:
    text = "policies:\n" + "- {name: A, defaultAction: Fail}\n" * 150
    lines = complaint(text).splitlines()
    assert len(lines) == 101
    assert lines[-1] == "f.yaml: and 50 more"


def test_only_some_of_many_names_are_listed() -> None:
    text = "defaultPolicy: zzz\npolicies:\n" + "".join(
        f"- {{name: p{index:02}, defaultAction: Fail}}\n" for index in range(30)
    )
    assert complaint(text).endswith("p17, p18, ...")


def test_time_to_refuse_a_value_does_not_grow_with_its_square() -> None:
    long = "1" * (MAX_SIZE - 2 * len(VALID))
    for old in ("10s", "standard", "no space left", "-1", "Evicted", "[137, 143]", "gpu"):
        assert complaint(VALID.replace(old, long, 1))
