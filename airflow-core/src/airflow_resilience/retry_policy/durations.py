# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Durations as Kubernetes writes them: ``30s``, ``5m``, ``1m30s``.

.. seealso:: https://pkg.go.dev/time#ParseDuration
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Final

import durationpy

from airflow_resilience.retry_policy.patterns import Pattern

_DURATION: Final = Pattern(r"\A(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+\z")
"""Stricter than the library, which skips unknown text between two parts and reads ``mm`` as a month. A sign
is not allowed: a delay cannot be negative."""


LONGEST_DURATION: Final = 86_400.0
"""Seconds: a day. A waiting task occupies a slot of its pool, and its owner has to see progress. A date plus
a day does not overflow either."""


def parse_duration(text: object) -> float:
    """
    Return the seconds of a duration, at most :data:`LONGEST_DURATION`.

    :param text: the value in the file, of any type; a bare number is refused for its missing unit
    :raises ValueError: for anything else, and for a longer duration
    """
    if not isinstance(text, str) or not _DURATION.found_in(text):
        raise ValueError(
            f"got {text!r}; a duration is numbers with units (ns, us, ms, s, m, h), as 30s or 1m30s"
        )
    try:
        seconds = durationpy.from_str(text).total_seconds()
    except (OverflowError, ValueError):  # more than a timedelta holds, in old and new versions of the library
        seconds = inf
    if seconds > LONGEST_DURATION:
        raise ValueError(f"got {text!r}; a duration is {format_duration(LONGEST_DURATION)} at most")
    return seconds


def format_duration(seconds: float) -> str:
    """Return the notation of a duration from 0 seconds to 100 years, rounded."""
    text = durationpy.to_str(timedelta(seconds=seconds))
    return "0s" if text == "0" else text
