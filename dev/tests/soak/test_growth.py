# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from soak.growth import Allowance, Growth, Sample, Span, compare

SPAN = Span(100, 140)


def rise(*values: float) -> list[Sample]:
    """One sample before the span, one in each of its quarters, and one after it, of these values."""
    return [Sample(95 + 10 * number, {"size": value}) for number, value in enumerate(values)]


def growth(samples: list[Sample], allowance: Allowance, *, comes_to_rest: bool = False) -> Growth:
    (row,) = compare(SPAN, samples, {"size": allowance}, comes_to_rest=comes_to_rest)
    return row


def test_the_last_quarter_is_compared_with_the_first() -> None:
    row = growth(rise(0, 10, 99, 99, 12, 7), Allowance(plus=1, percent=10))
    assert row == Growth(name="size", first=10, last=12, limit=12, rest=7)
    assert row.none


def test_more_than_is_allowed_is_growth() -> None:
    assert not growth(rise(0, 10, 10, 10, 13, 10), Allowance(plus=1, percent=10)).none


def test_one_sample_that_sticks_out_is_not_growth() -> None:
    samples = [*rise(0, 10, 10, 10, 10), Sample(136, {"size": 10}), Sample(137, {"size": 500})]
    assert growth(samples, Allowance(plus=0)).none


@pytest.mark.parametrize(("rest", "none"), [(2, True), (3, False)])
def test_what_comes_to_rest_is_in_the_end_as_it_was(rest: float, none: bool) -> None:
    samples = rise(2, 10, 10, 10, 10, rest)
    assert growth(samples, Allowance(plus=0), comes_to_rest=True).none is none
    assert growth(samples, Allowance(plus=0)).none


def test_what_is_missing_was_empty() -> None:
    samples = [Sample(sample.time, {}) for sample in rise(0, 0, 0, 0, 0)] + [Sample(150, {"size": 1})]
    row = growth(samples, Allowance(plus=0), comes_to_rest=True)
    assert (row.first, row.last, row.idle, row.rest) == (0, 0, 0, 1)
    assert not row.none


@pytest.mark.parametrize("missing", [1, 4])
def test_a_quarter_without_a_sample_is_an_error(missing: int) -> None:
    samples = rise(1, 1, 1, 1, 1, 1)
    del samples[missing]
    with pytest.raises(ValueError, match="nothing was measured"):
        growth(samples, Allowance(plus=0))


@pytest.mark.parametrize(("first", "limit"), [(0, 55), (40, 55), (60, 65)])
def test_what_pools_may_hold_is_no_growth(first: float, limit: float) -> None:
    assert Allowance(plus=5, pooled=55).limit(first) == limit
