# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.values import Spread, fit_growth, percentile

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1)


def test_a_spread_is_median_and_extremes() -> None:
    assert Spread.of([3.0, 1.0, 8.0, 2.0]) == Spread(2.5, 1.0, 8.0, 4)


def test_nothing_has_no_spread() -> None:
    with pytest.raises(ValueError, match="no samples"):
        Spread.of([])


@pytest.mark.parametrize(("percent", "expected"), [(1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile(range(100, 0, -1), percent) == expected


@given(NUMBERS, st.floats(0.1, 100))
def test_so_many_percent_are_not_above_the_percentile(samples: list[float], percent: float) -> None:
    found = percentile(samples, percent)
    assert found in samples
    assert sum(sample <= found for sample in samples) >= len(samples) * percent / 100 - 1e-9


@pytest.mark.parametrize(("samples", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_a_percentile_of_nothing_is_refused(samples: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(samples, percent)


@given(st.floats(-2, 3), st.floats(0.01, 100))
def test_a_power_law_is_found_again(exponent: float, factor: float) -> None:
    growth = fit_growth({size: factor * size**exponent for size in (100.0, 1000.0, 10_000.0)})
    assert growth.exponent == pytest.approx(exponent, abs=1e-6)
    assert growth.factor == pytest.approx(factor, rel=1e-4)


@pytest.mark.parametrize("costs", [{}, {100.0: 1.0}, {100.0: 1.0, 1000.0: 0.0}, {0.0: 1.0, 10.0: 1.0}])
def test_a_fit_needs_two_sizes_and_positive_numbers(costs: dict[float, float]) -> None:
    with pytest.raises(ValueError, match="two sizes"):
        fit_growth(costs)
