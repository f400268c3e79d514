# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is decided about a failed launch, for each limit and count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.policy import UNLIMITED, Action, Decision, LaunchFailurePolicy


@pytest.mark.parametrize(
    ("retries", "relaunches", "decision"),
    [
        (0, 0, Decision(Action.FAIL, "limit", "launch 1 of 1; no relaunch is left")),
        (1, 0, Decision(Action.RELAUNCH, "launch-failure", "launch 1 of 2")),
        (1, 1, Decision(Action.FAIL, "limit", "launch 2 of 2; no relaunch is left")),
        (3, 2, Decision(Action.RELAUNCH, "launch-failure", "launch 3 of 4")),
        (3, 3, Decision(Action.FAIL, "limit", "launch 4 of 4; no relaunch is left")),
        # The limit was lowered while the try was going on.
        (1, 3, Decision(Action.FAIL, "limit", "launch 4 of 2; no relaunch is left")),
        (UNLIMITED, 0, Decision(Action.RELAUNCH, "launch-failure", "launch 1 of unlimited")),
        (UNLIMITED, 999, Decision(Action.RELAUNCH, "launch-failure", "launch 1000 of unlimited")),
    ],
)
def test_infrastructure_failure_is_relaunched_up_to_the_limit(
    retries: int, relaunches: int, decision: Decision
) -> None:
    assert LaunchFailurePolicy(retries).decide(pre_execution=True, relaunches=relaunches) == decision


@pytest.mark.parametrize(
    ("retries", "used"), [(0, "launch 1 of 1"), (3, "launch 1 of 4"), (UNLIMITED, "launch 1 of unlimited")]
)
def test_exit_of_the_worker_itself_is_never_relaunched(retries: int, used: str) -> None:
    assert LaunchFailurePolicy(retries).decide(pre_execution=False, relaunches=0) == Decision(
        Action.FAIL, "excluded", f"{used}; the worker's own exit is not relaunched"
    )


@pytest.mark.parametrize("retries", [-2, -100])
def test_limit_below_unlimited_is_refused(retries: int) -> None:
    with pytest.raises(ValueError, match=f"got {retries}"):
        LaunchFailurePolicy(retries)


@given(retries=st.integers(min_value=0, max_value=50))
def test_number_of_launches_of_one_try_is_bounded(retries: int) -> None:
    policy, relaunches = LaunchFailurePolicy(retries), 0
    while policy.decide(pre_execution=True, relaunches=relaunches).action is Action.RELAUNCH:
        relaunches += 1
        assert relaunches <= retries
    assert relaunches == retries
    assert policy.launches == str(retries + 1)
