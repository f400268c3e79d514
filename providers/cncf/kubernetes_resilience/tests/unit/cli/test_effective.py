# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.cli.effective import (
    describe_backoff,
    describe_condition,
    describe_limit,
)
from airflow_resilience.backoff import Backoff
from airflow_resilience.context import StateChangeCategory
from airflow_resilience.retry_policy.built_in import OwnExit, ShownReasons
from airflow_resilience.retry_policy.evidence import ConditionEvidence, Phase
from airflow_resilience.retry_policy.matchers import (
    ContainerScope,
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

BASE = ContainerScope(name="base", include_init=False)


@pytest.mark.parametrize(
    ("matcher", "text"),
    [
        (OnPhases(frozenset(Phase)), "phases Execution, Launch"),
        (OnCategories(frozenset({StateChangeCategory.TIMEOUT})), "onCategories TIMEOUT"),
        (OnContainer("git-sync"), "containerName git-sync"),
        (OnReasons(reasons=frozenset({"Evicted", "B"})), "onReasons B, Evicted"),
        (
            OnExitCodes(operator=Operator.NOT_IN, values=frozenset({143, 9}), containers=BASE),
            "onExitCodes NotIn 9, 143 of base, without init containers",
        ),
        (
            OnPodConditions(
                (
                    ConditionEvidence(type="Ready", status="False"),
                    ConditionEvidence(type="X", status="True"),
                )
            ),
            "onPodConditions Ready=False, X=True",
        ),
        (OnTerminationMessage(pattern=Pattern("a b")), "onTerminationMessage 'a b'"),
        (OwnExit(), "the worker container ended on its own, reason Error"),
        (ShownReasons(frozenset({"b", "a"})), "the pod or a container shows reason a, b"),
        ("a condition of a later version", "a condition of a later version"),
    ],
)
def test_condition_in_the_words_of_the_file(matcher, text):
    assert describe_condition(matcher) == text


@pytest.mark.parametrize(("limit", "text"), [(None, None), (-1, "unlimited"), (0, "0"), (7, "7")])
def test_limit_in_words(limit, text):
    assert describe_limit(limit) == text


@pytest.mark.parametrize(
    ("backoff", "text"),
    [
        (None, None),
        (Backoff(initial=90, multiplier=1, maximum=300, jitter=0), "1m30s, jitter 0"),
        (Backoff(initial=10, multiplier=1.5, maximum=300), "10s times 1.5 up to 5m, jitter 1"),
        (Backoff(initial=9, maximum=60, begins_at_once=True), "at once, then 9s times 2 up to 1m, jitter 1"),
    ],
)
def test_backoff_in_one_line(backoff, text):
    assert describe_backoff(backoff) == text
