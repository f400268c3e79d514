# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which policies a task gets, and what it may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.decision import UNLIMITED
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.rule import InfrastructureBudget, Policy, PolicySet, Selector
from airflow_resilience.retry_policy.selection import (
    NO_OPTIONS,
    TaskOptions,
    TaskProfile,
    read_task_options,
    select,
)

NAMES = ("standard", "gpu", "etl", "spot")


def policies(*selectors: Selector) -> PolicySet:
    return PolicySet(
        policies={name: Policy(name=name, rules=()) for name in NAMES},
        default="standard",
        global_max_retries=10,
        selectors=selectors,
        origin="policies.yaml",
    )


def task(options: TaskOptions = NO_OPTIONS, **fields: Any) -> TaskProfile:
    place = {"dag_id": "etl_daily", "task_id": "load", "queue": "default", "pool": "default_pool"}
    return TaskProfile(**{**place, **fields}, options=options)


def chain(policy_set: PolicySet, profile: TaskProfile) -> list[tuple[str, str]]:
    return [(policy.name, why) for policy, why in select(policy_set, profile).policies]


DEFAULT = ("standard", "the default policy")


@pytest.mark.parametrize(
    ("fields", "profile", "why"),
    [
        ({"queues": frozenset({"gpu", "tpu"})}, task(queue="gpu"), "queue gpu"),
        ({"pools": frozenset({"big"})}, task(pool="big"), "pool big"),
        ({"dag_ids": ("x", "etl_*")}, task(), "DAG id etl_*"),
        ({"dag_tags": frozenset({"ml", "a"})}, task(dag_tags=frozenset({"ml", "z"})), "DAG tag ml"),
        (
            {"queues": frozenset({"gpu"}), "dag_ids": ("etl_daily",)},
            task(queue="gpu"),
            "queue gpu and DAG id etl_daily",
        ),
    ],
)
def test_selector_matches(fields: dict[str, Any], profile: TaskProfile, why: str) -> None:
    selected = chain(policies(Selector(policy="gpu", **fields)), profile)
    assert selected == [("gpu", f"selected by {why}"), DEFAULT]


@pytest.mark.parametrize(
    "fields",
    [
        {"queues": frozenset({"gpu"})},
        {"pools": frozenset({"Default_Pool"})},
        {"dag_ids": ("ETL_*", "daily")},
        {"dag_tags": frozenset({"ml"})},
        {"dag_ids": ("etl_*",), "queues": frozenset({"gpu"})},
    ],
)
def test_selector_does_not_match(fields: dict[str, Any]) -> None:
    assert chain(policies(Selector(policy="gpu", **fields)), task()) == [DEFAULT]


def test_operator_comes_first_then_the_task_then_the_default() -> None:
    policy_set = policies(
        Selector(policy="spot", dag_ids=("etl_*",)), Selector(policy="etl", queues=frozenset({"default"}))
    )
    assert chain(policy_set, task(TaskOptions(("gpu", "spot", "gpu")))) == [
        ("spot", "selected by DAG id etl_*"),
        ("etl", "selected by queue default"),
        ("gpu", "the task asks for it"),
        DEFAULT,
    ]


def test_policy_stays_where_it_was_named_first() -> None:
    assert chain(policies(), task(TaskOptions(("standard", "gpu")))) == [
        ("standard", "the task asks for it"),
        ("gpu", "the task asks for it"),
    ]


def test_unknown_names_are_left_out_and_reported_once() -> None:
    selection = select(policies(), task(TaskOptions(("gone", "gpu", "gone", "lost"))))
    assert selection.unknown == ("gone", "lost")
    assert [policy.name for policy, _ in selection.policies] == ["gpu", "standard"]


@pytest.mark.parametrize("retries", [None, UNLIMITED, 0, 3])
def test_limit_of_the_task_is_handed_on(retries: int | None) -> None:
    assert select(policies(), task(TaskOptions(retries=retries))).retries == retries


@pytest.mark.parametrize(
    ("fields", "names"),
    [({"default": "nix"}, "nix"), ({"selectors": (Selector(policy="b"), Selector(policy="a"))}, "a, b")],
)
def test_names_without_a_policy_are_refused(fields: dict[str, Any], names: str) -> None:
    known = {"standard": Policy(name="standard", rules=())}
    with pytest.raises(ValueError, match=f"no such policy: {names}$"):
        PolicySet(
            **{"policies": known, "default": "standard", "global_max_retries": 1, "origin": "", **fields}
        )


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (None, TaskOptions()),
        ({}, TaskOptions()),
        ({"pod_override": object()}, TaskOptions()),
        ({"retry_policies": None, "pod_launch_failure_retries": None}, TaskOptions()),
        ({"retry_policies": ["gpu", "spot"]}, TaskOptions(("gpu", "spot"))),
        ({"retry_policies": ("gpu",), "pod_launch_failure_retries": 4}, TaskOptions(("gpu",), 4)),
        ({"pod_launch_failure_retries": 0}, TaskOptions((), 0)),
        ({"pod_launch_failure_retries": -1}, TaskOptions((), UNLIMITED)),
        ({"infrastructure_retry_enabled": None, "infrastructure_retry_limit": None}, TaskOptions()),
        ({"infrastructure_retry_enabled": True}, TaskOptions(wants_infrastructure_retries=True)),
        ({"infrastructure_retry_enabled": False}, TaskOptions(infrastructure_retries=0)),
        (
            {"infrastructure_retry_enabled": False, "infrastructure_retry_limit": 7},
            TaskOptions(infrastructure_retries=0),
        ),
        (
            {"infrastructure_retry_enabled": True, "infrastructure_retry_limit": 7, "pod_override": object()},
            TaskOptions(infrastructure_retries=7, wants_infrastructure_retries=True),
        ),
        ({"infrastructure_retry_limit": -1}, TaskOptions(infrastructure_retries=UNLIMITED)),
        # What cannot be used becomes a problem.
        ("gpu", TaskOptions(problems=("executor_config: got 'gpu'; allowed: a dictionary",))),
        ([], TaskOptions(problems=("executor_config: got []; allowed: a dictionary",))),
        (
            {"retry_policies": "gpu", "pod_launch_failure_retries": 2},
            TaskOptions((), 2, ("retry_policies: got 'gpu'; allowed: a list of names",)),
        ),
        (
            {"retry_policies": ["gpu", 3, None]},
            TaskOptions(
                ("gpu",),
                None,
                (
                    "retry_policies: got 3; allowed: names only",
                    "retry_policies: got None; allowed: names only",
                ),
            ),
        ),
    ],
)
def test_task_options(config: object, options: TaskOptions) -> None:
    assert read_task_options(config) == options


@pytest.mark.parametrize("key", ["pod_launch_failure_retries", "infrastructure_retry_limit"])
@pytest.mark.parametrize("value", [-2, True, False, 1.0, "1", [1], 1_000_001])
def test_limit_that_is_no_number_of_relaunches_becomes_a_problem(key: str, value: object) -> None:
    allowed = "a whole number from -1 (no limit) to 1000000"
    assert read_task_options({key: value}) == TaskOptions(
        problems=(f"{key}: got {value!r}; allowed: {allowed}",)
    )


@pytest.mark.parametrize("value", [0, 1, "True", [], {}])
def test_switch_that_is_no_switch_becomes_a_problem_and_leaves_the_rest(value: object) -> None:
    options = read_task_options({"infrastructure_retry_enabled": value, "infrastructure_retry_limit": 2})
    problem = f"infrastructure_retry_enabled: got {value!r}; allowed: True, False"
    assert options == TaskOptions(infrastructure_retries=2, problems=(problem,))


@pytest.mark.parametrize(
    ("config", "budget", "expected"),
    [
        ({}, 0, None),
        ({}, 5, None),
        ({"infrastructure_retry_enabled": False}, 5, 0),
        ({"infrastructure_retry_enabled": True}, 0, 3),
        ({"infrastructure_retry_enabled": True}, 5, None),
        ({"infrastructure_retry_enabled": True}, UNLIMITED, None),
        ({"infrastructure_retry_enabled": True, "infrastructure_retry_limit": 7}, 0, 7),
        ({"infrastructure_retry_limit": 7}, 5, 7),
        ({"infrastructure_retry_limit": 0}, 5, 0),
    ],
)
def test_infrastructure_budget_of_a_task(config: object, budget: int, expected: int | None) -> None:
    policy_set = built_in(1, (), InfrastructureBudget(budget=budget))
    assert select(policy_set, task(read_task_options(config))).infrastructure_retries == expected


def test_limit_of_more_digits_than_python_shows_becomes_a_problem() -> None:
    options = read_task_options({"pod_launch_failure_retries": 10**5000})
    assert options.retries is None
    assert "got a number that is too long to be shown; allowed:" in options.problems[0]


def test_problem_stays_readable_whatever_was_written() -> None:
    (problem,) = read_task_options({"retry_policies": "x" * 100_000}).problems
    assert len(problem) < 200


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.builds(object),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    config=anything
    | st.fixed_dictionaries({}, optional={"retry_policies": anything, "pod_launch_failure_retries": anything})
)
def test_task_options_never_raise_and_give_what_select_takes(config: object) -> None:
    options = read_task_options(config)
    selection = select(policies(), task(options))
    assert selection.policies[-1].policy.name == "standard" or "standard" in options.policies
    assert options.retries is None or options.retries >= UNLIMITED
    assert len(set(selection.policies)) == len(selection.policies)
