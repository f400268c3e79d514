# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Whether something has grown: the last quarter of a run against the first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple


class Sample(NamedTuple):
    """What was measured at one moment, by name."""

    time: float
    """Seconds since the epoch."""
    values: Mapping[str, float]


@dataclass(frozen=True)
class Allowance:
    """What the last quarter may have more than the first, for reasons other than growth."""

    plus: float
    percent: float = 0.0
    pooled: float = 0.0
    """So much is kept for use again, and is no growth whatever the first quarter had of it."""

    def limit(self, first: float) -> float:
        """Return the most that is not taken for growth."""
        return max(first * (1 + self.percent / 100) + self.plus, self.pooled)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One row of the table."""

    name: str
    first: float
    """Median of the first quarter."""
    last: float
    """Median of the last quarter."""
    limit: float
    rest: float
    """The last value, when there was nothing left to do."""
    idle: float | None = None
    """What it was before there was anything to do, if it has to be that again."""

    @property
    def none(self) -> bool:
        """Whether it has not grown."""
        return self.last <= self.limit and (self.idle is None or self.rest <= self.idle)


@dataclass(frozen=True)
class Span:
    """The time that is looked at, in seconds since the epoch."""

    start: float
    end: float

    def quarters(self, samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
        """
        Return the samples of the first and of the last quarter.

        :raises ValueError: if there are none in one of them
        """
        length = (self.end - self.start) / 4
        first = [sample for sample in samples if self.start <= sample.time < self.start + length]
        last = [sample for sample in samples if self.end - length <= sample.time < self.end]
        if not first or not last:
            raise ValueError("nothing was measured in the first or in the last quarter")
        return first, last


def compare(
    span: Span, samples: Sequence[Sample], allowances: Mapping[str, Allowance], *, comes_to_rest: bool = False
) -> list[Growth]:
    """
    Return a row for each name that has an allowance, in their order.

    :param samples: in the order of time: some from before the span, and at least one from after it; a value
        that is missing was 0
    :param comes_to_rest: whether the last sample has to be like the first again
    :raises ValueError: if there are none in the first or in the last quarter
    """
    first, last = span.quarters(samples)
    rows = []
    for name, allowance in allowances.items():
        before = _median(first, name)
        rows.append(
            Growth(
                name=name,
                first=before,
                last=_median(last, name),
                limit=allowance.limit(before),
                rest=samples[-1].values.get(name, 0),
                idle=samples[0].values.get(name, 0) if comes_to_rest else None,
            )
        )
    return rows


def _median(samples: Sequence[Sample], name: str) -> float:
    return median(sample.values.get(name, 0) for sample in samples)
