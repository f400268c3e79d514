# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Delays before the next attempt, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """
    Exponential growth with a ceiling and jitter.

    .. seealso:: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """

    initial: float
    """Seconds before the second attempt."""
    multiplier: float = 2.0
    """Growth from one attempt to the next; 1 keeps the delay constant."""
    maximum: float
    """Seconds that no delay exceeds."""
    begins_at_once: bool = False
    """Whether the second attempt follows at once, and the third after the initial delay."""
    jitter: float = 1.0
    """Share of the delay that is random: 0 is none, 1 is any delay between 0 and the full one. Without
    jitter, attempts that failed together are repeated together."""

    def __post_init__(self) -> None:
        """
        Refuse numbers that make no delay.

        :raises ValueError: with the field and its allowed values
        """
        if not 0 <= self.initial <= self.maximum < float("inf"):
            raise ValueError(f"backoff: 0 <= initial <= maximum, got {self.initial} and {self.maximum}")
        if not 1 <= self.multiplier < float("inf"):
            raise ValueError(f"backoff: multiplier must be at least 1, got {self.multiplier}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff: jitter must be between 0 and 1, got {self.jitter}")

    def delay(self, attempt: int, random: Callable[[], float]) -> float:
        """
        Return the seconds to wait after a failed attempt.

        :param attempt: number of the attempt that failed, from 1
        :param random: returns a number from 0 up to 1
        """
        attempt -= self.begins_at_once
        if not self.initial or not attempt:
            return 0.0
        try:
            full = min(self.maximum, self.initial * self.multiplier ** (attempt - 1))
        except OverflowError:  # the 1,025th failure in a row, reached within a day of outage
            full = self.maximum
        return full * (1 - self.jitter * random())


def constant_backoff(delay: float) -> Backoff:
    """
    Return a backoff that waits as long each time.

    :param delay: seconds
    """
    return Backoff(initial=delay, multiplier=1.0, maximum=delay, jitter=0.0)
