# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Each condition of a rule by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.retry_policy.evidence import ConditionEvidence, ContainerEvidence, Evidence, Phase
from airflow_resilience.retry_policy.matchers import (
    SEARCHED_LENGTH,
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

ANY = ContainerScope()
BASE = ContainerScope(name="base")
NO_INIT = ContainerScope(include_init=False)


def failure(*containers: ContainerEvidence, **fields: Any) -> Evidence:
    context = ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_TERMINATION, ContextSource.EXECUTOR
    )
    return Evidence(**{"phase": Phase.LAUNCH, "context": context, "containers": containers, **fields})


def base(exit_code: int | None = None, **fields: Any) -> ContainerEvidence:
    return ContainerEvidence(name="base", exit_code=exit_code, **fields)


def init(exit_code: int | None = None, **fields: Any) -> ContainerEvidence:
    return ContainerEvidence(name="git-sync", is_init=True, exit_code=exit_code, **fields)


@pytest.mark.parametrize(
    ("phases", "finding"),
    [
        ({Phase.LAUNCH}, (True, "phase launch is in launch")),
        ({Phase.LAUNCH, Phase.EXECUTION}, (True, "phase launch is in execution, launch")),
        ({Phase.EXECUTION}, (False, "phase launch is not in execution")),
    ],
)
def test_phases(phases: set[Phase], finding: tuple[bool, str]) -> None:
    assert OnPhases(frozenset(phases)).check(failure()) == finding


@pytest.mark.parametrize(
    ("category", "finding"),
    [
        ("INFRASTRUCTURE", (True, "category INFRASTRUCTURE is in INFRASTRUCTURE")),
        ("APPLICATION", (False, "category INFRASTRUCTURE is not in APPLICATION")),
    ],
)
def test_categories(category: str, finding: tuple[bool, str]) -> None:
    assert OnCategories(frozenset({StateChangeCategory(category)})).check(failure()) == finding


@pytest.mark.parametrize(
    ("decided", "finding"),
    [
        ("git-sync", (True, "git-sync ended the worker")),
        ("base", (False, "base ended the worker, git-sync did not")),
        (None, (False, "no container ended the worker, so git-sync did not")),
    ],
)
def test_container(decided: str | None, finding: tuple[bool, str]) -> None:
    assert OnContainer("git-sync").check(failure(deciding_container=decided)) == finding


@pytest.mark.parametrize(
    ("operator", "containers", "scope", "finding"),
    [
        ("In", [base(137)], ANY, (True, "exit code 137 of base is in 137, 143")),
        ("In", [base(1)], ANY, (False, "exit code 1 of base is not in 137, 143")),
        ("NotIn", [base(1)], ANY, (True, "exit code 1 of base is not in 137, 143")),
        ("NotIn", [base(137)], ANY, (False, "exit code 137 of base is in 137, 143")),
        # One container is enough, for either operator.
        ("In", [base(1), init(143)], ANY, (True, "exit code 143 of git-sync is in 137, 143")),
        ("NotIn", [base(1), init(143)], ANY, (True, "exit code 1 of base is not in 137, 143")),
        (
            "In",
            [base(1), init(2)],
            ANY,
            (False, "exit code 1 of base and exit code 2 of git-sync are not in 137, 143"),
        ),
        # Success is not a failure with an exit code that is not listed.
        ("NotIn", [base(0)], ANY, (False, "no exit code but 0 is known of any container")),
        ("NotIn", [base(0), init(2)], BASE, (False, "no exit code but 0 is known of base")),
        ("NotIn", [base(None)], ANY, (False, "no exit code but 0 is known of any container")),
        ("In", [], ANY, (False, "no exit code but 0 is known of any container")),
        # Only the named container, only those that are not init containers.
        ("In", [init(137)], BASE, (False, "no exit code but 0 is known of base")),
        ("NotIn", [init(1)], NO_INIT, (False, "no exit code but 0 is known of any container")),
        ("NotIn", [init(1), base(2)], NO_INIT, (True, "exit code 2 of base is not in 137, 143")),
        (
            "In",
            [init(137)],
            ContainerScope(name="git-sync", include_init=False),
            (False, "no exit code but 0 is known of git-sync"),
        ),
    ],
)
def test_exit_codes(
    operator: str, containers: list[ContainerEvidence], scope: ContainerScope, finding: tuple[bool, str]
) -> None:
    matcher = OnExitCodes(operator=Operator(operator), values=frozenset({137, 143}), containers=scope)
    assert matcher.check(failure(*containers)) == finding


def test_exit_codes_are_listed_as_numbers_are() -> None:
    matcher = OnExitCodes(operator=Operator.IN, values=frozenset({143, 9, 20}))
    assert matcher.check(failure(base(1))).why == "exit code 1 of base is not in 9, 20, 143"


EVICTION = ConditionEvidence(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
DISRUPTED = replace(EVICTION, reason=None)
UNREADY = ConditionEvidence(type="Ready", status="False")


@pytest.mark.parametrize(
    ("pattern", "noted", "holds"),
    [
        (DISRUPTED, [EVICTION], True),
        (DISRUPTED, [UNREADY, EVICTION], True),
        (EVICTION, [EVICTION], True),
        (replace(EVICTION, reason="PreemptionByScheduler"), [EVICTION], False),
        (replace(EVICTION, reason="X"), [DISRUPTED], False),
        (replace(DISRUPTED, status="False"), [EVICTION], False),
        (DISRUPTED, [replace(EVICTION, status="False")], False),
        (DISRUPTED, [replace(EVICTION, status="Unknown")], False),
        (replace(UNREADY, status="True"), [EVICTION, UNREADY], False),
        (UNREADY, [EVICTION, UNREADY], True),
        (DISRUPTED, [], False),
    ],
)
def test_conditions(pattern: ConditionEvidence, noted: list[ConditionEvidence], holds: bool) -> None:
    evidence = failure(conditions=tuple(noted))
    assert OnPodConditions((pattern,)).check(evidence).holds is holds
    other = ConditionEvidence(type="ConfigIssue", status="True")
    assert OnPodConditions((other, pattern)).check(evidence).holds is holds


@pytest.mark.parametrize(
    ("noted", "why"),
    [
        (
            [EVICTION, UNREADY],
            "condition DisruptionTarget=True (EvictionByEvictionAPI) is in DisruptionTarget=True",
        ),
        ([UNREADY], "condition Ready=False is not in DisruptionTarget=True"),
        ([], "no condition is known of the worker"),
    ],
)
def test_conditions_are_explained(noted: list[ConditionEvidence], why: str) -> None:
    matcher = OnPodConditions((DISRUPTED,))
    assert matcher.check(failure(conditions=tuple(noted))).why == why


@pytest.mark.parametrize(
    ("evidence", "scope", "finding"),
    [
        (failure(reasons=["Failed", "Evicted"]), BASE, (True, "reason Evicted is in Error, Evicted")),
        (failure(base(reason="Error")), ANY, (True, "reason Error of base is in Error, Evicted")),
        (
            failure(reasons={"Evicted"}, containers=(base(reason="Error"),)),
            ANY,
            (True, "reason Evicted and reason Error of base are in Error, Evicted"),
        ),
        (failure(init(reason="Error")), BASE, (False, "reason WORKER_TERMINATION is not in Error, Evicted")),
        (
            failure(init(reason="Error"), base()),
            NO_INIT,
            (False, "reason WORKER_TERMINATION is not in Error, Evicted"),
        ),
        (
            failure(base(reason="Y"), reasons=["X"]),
            ANY,
            (False, "reason X and reason Y of base and reason WORKER_TERMINATION are not in Error, Evicted"),
        ),
    ],
)
def test_reasons(evidence: Evidence, scope: ContainerScope, finding: tuple[bool, str]) -> None:
    assert OnReasons(reasons=frozenset({"Evicted", "Error"}), containers=scope).check(evidence) == finding


def test_reason_of_the_context_counts_too() -> None:
    finding = OnReasons(reasons=frozenset({"WORKER_TERMINATION"}), containers=BASE).check(failure())
    assert finding == (True, "reason WORKER_TERMINATION is in WORKER_TERMINATION")


@pytest.mark.parametrize(
    ("evidence", "scope", "finding"),
    [
        (
            failure(base(message="write: no space left on device")),
            ANY,
            (True, "the message of base matches 'no space left'"),
        ),
        (failure(message="no space left"), ANY, (True, "the message of the worker matches 'no space left'")),
        (failure(message="no space left"), BASE, (False, "no message is known of base")),
        (failure(), ANY, (False, "no message is known of any container")),
        (
            failure(base(message="fine"), init(message="no space left")),
            BASE,
            (False, "the message of base does not match 'no space left'"),
        ),
        (
            failure(base(message="fine"), init(message="no space left"), message="over"),
            NO_INIT,
            (False, "the message of base and the worker does not match 'no space left'"),
        ),
    ],
)
def test_termination_message(evidence: Evidence, scope: ContainerScope, finding: tuple[bool, str]) -> None:
    matcher = OnTerminationMessage(pattern=Pattern("no space left"), containers=scope)
    assert matcher.check(evidence) == finding


@pytest.mark.parametrize("message", [None, ""])
def test_absent_message_matches_nothing(message: str | None) -> None:
    matcher = OnTerminationMessage(pattern=Pattern(".*"))
    assert not matcher.check(failure(base(message=message), message=message)).holds


@pytest.mark.parametrize("message", ["was killed", "was killed\n", "x\nwas killed\n"])
def test_end_of_a_message_is_before_its_last_line_break(message: str) -> None:
    assert OnTerminationMessage(pattern=Pattern("killed$")).check(failure(base(message=message))).holds


@pytest.mark.parametrize("pattern", [r"killed\n", r"killed\s$", r"killed\n\z"])
def test_last_line_break_of_a_message_is_searched_too(pattern: str) -> None:
    assert OnTerminationMessage(pattern=Pattern(pattern)).check(failure(base(message="was killed\n"))).holds


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}$", "([a-z]+)*!"])
def test_pattern_that_would_keep_another_engine_busy_for_ever_is_answered(pattern: str) -> None:
    # With a backtracking engine this test does not end, and nothing could end it.
    message = "a" * (SEARCHED_LENGTH - 1) + "b"
    assert not OnTerminationMessage(pattern=Pattern(pattern)).check(failure(base(message=message))).holds


@pytest.mark.parametrize(("before", "holds"), [(SEARCHED_LENGTH - 3, True), (SEARCHED_LENGTH - 2, False)])
def test_only_the_beginning_of_a_message_is_searched(before: int, holds: bool) -> None:
    matcher = OnTerminationMessage(pattern=Pattern("end"))
    assert matcher.check(failure(base(message="x" * before + "end"))).holds is holds
