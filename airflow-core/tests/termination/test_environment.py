# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_resilience.termination.environment import (
    DEFAULT_GRACE_PERIOD,
    GRACE_PERIOD,
    INFRASTRUCTURE_RETRY,
    grace_period,
    runs_again,
)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({INFRASTRUCTURE_RETRY: "1"}, True), ({INFRASTRUCTURE_RETRY: "0"}, False), ({}, False)],
)
def test_a_task_runs_again_only_where_the_executor_says_so(environment, expected):
    assert runs_again(environment) is expected


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [({GRACE_PERIOD: "120"}, 120), ({GRACE_PERIOD: "0"}, 0), ({}, DEFAULT_GRACE_PERIOD)],
)
def test_the_grace_period_is_the_pods(environment, seconds):
    assert grace_period(environment) == seconds


@pytest.mark.parametrize("text", ["soon", "", "-1", "nan", "inf"])
def test_a_grace_period_that_cannot_be_used_is_logged(text, caplog):
    assert grace_period({GRACE_PERIOD: text}) == DEFAULT_GRACE_PERIOD
    assert f"{GRACE_PERIOD} is {text!r}" in caplog.text
