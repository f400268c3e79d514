# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Numbers made of samples: medians, spreads, percentiles, and how a cost grows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """The samples of one number."""

    median: float
    lowest: float
    highest: float
    runs: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """
        Summarise samples.

        :raises ValueError: if there are none
        """
        if not samples:
            raise ValueError("there are no samples")
        return cls(median(samples), min(samples), max(samples), len(samples))


def percentile(samples: Iterable[float], percent: float) -> float:
    """
    Return the smallest sample that so many percent of all are not above (the nearest-rank method).

    :raises ValueError: if there are no samples, or it is not a percentage above 0
    """
    ordered = sorted(samples)
    if not ordered or not 0 < percent <= 100:
        raise ValueError("a percentile needs samples, and a percentage above 0")
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


@dataclass(frozen=True, slots=True)
class Growth:
    """How a cost grows: ``cost = factor * size ** exponent``; 1 is linear, 0 is not at all."""

    exponent: float
    factor: float


def fit_growth(costs: Mapping[float, float]) -> Growth:
    """
    Fit a power law to costs by size: a straight line through their logarithms.

    :raises ValueError: if there are fewer than two sizes, or one of the numbers is not positive
    """
    if len(costs) < 2 or min(*costs, *costs.values()) <= 0:
        raise ValueError("a fit needs two sizes or more, and positive numbers")
    sizes, values = [*map(math.log, costs)], [*map(math.log, costs.values())]
    exponent, intercept = linear_regression(sizes, values)
    return Growth(exponent, math.exp(intercept))
