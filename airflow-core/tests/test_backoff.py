# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Growth, ceiling and jitter of the delays between attempts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.backoff import Backoff, constant_backoff


def least() -> float:
    return 0.0


def test_grows_up_to_the_maximum() -> None:
    backoff = Backoff(initial=1.0, multiplier=3.0, maximum=20.0)
    assert [backoff.delay(attempt, least) for attempt in range(1, 6)] == [1, 3, 9, 20, 20]


def test_multiplier_of_one_is_constant() -> None:
    backoff = Backoff(initial=5.0, multiplier=1.0, maximum=60.0)
    assert [backoff.delay(attempt, least) for attempt in (1, 2, 5000)] == [5, 5, 5]


def test_second_attempt_may_follow_at_once() -> None:
    backoff = Backoff(initial=10.0, maximum=30.0, begins_at_once=True)
    assert [backoff.delay(attempt, least) for attempt in range(1, 6)] == [0, 10, 20, 30, 30]


def test_jitter_takes_its_share_away() -> None:
    half = Backoff(initial=8.0, maximum=8.0, jitter=0.5)
    assert half.delay(1, lambda: 0.5) == 6.0
    assert Backoff(initial=8.0, maximum=8.0, jitter=0.0).delay(1, lambda: 0.9) == 8.0


def test_outage_of_a_day_does_not_overflow() -> None:
    assert Backoff(initial=0.5, maximum=60.0).delay(100_000, least) == 60.0


@given(
    attempt=st.integers(min_value=1, max_value=10_000),
    chance=st.floats(min_value=0, max_value=1, exclude_max=True),
    jitter=st.floats(min_value=0, max_value=1),
)
def test_delay_is_within_its_bounds(attempt: int, chance: float, jitter: float) -> None:
    backoff = Backoff(initial=0.25, multiplier=1.7, maximum=45.0, jitter=jitter)
    full = backoff.delay(attempt, least)
    assert full * (1 - jitter) - 1e-9 <= backoff.delay(attempt, lambda: chance) <= full <= 45.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial", -1.0),
        ("initial", 61.0),
        ("maximum", math.inf),
        ("maximum", math.nan),
        ("multiplier", 0.5),
        ("jitter", 1.5),
    ],
)
def test_impossible_numbers_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        Backoff(**{"initial": 1.0, "maximum": 60.0, field: value})


@pytest.mark.parametrize("delay", [0.0, 10.0])
def test_constant_backoff_neither_grows_nor_varies(delay: float) -> None:
    backoff = constant_backoff(delay)
    assert {backoff.delay(attempt, lambda: 0.7) for attempt in (1, 2, 2000)} == {delay}
