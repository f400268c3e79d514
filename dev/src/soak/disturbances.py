# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""When something goes wrong beside the pods: planned with a seed, so that it can be planned again. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

PAUSE = (6.0, 16.0)
"""Seconds between two of them, at least and at most."""

LIFE = (20.0, 60.0)
"""Seconds between the start of the second scheduler and its end."""


class Disturbance(StrEnum):
    """What can go wrong."""

    WATCHES_CUT = "watches cut"
    WATCH_EXPIRED = "watch expired (410)"
    EVENTS_REPEATED = "watch events repeated"
    TOO_MANY_REQUESTS = "burst of 429"
    REPLIES_LOST = "replies lost"
    API_SERVER_KILLED = "API server killed"
    SCHEDULER_STARTED = "2nd scheduler started"
    SCHEDULER_KILLED = "2nd scheduler killed"


SCHEDULER_EVENTS = (Disturbance.SCHEDULER_STARTED, Disturbance.SCHEDULER_KILLED)


@dataclass(frozen=True)
class Planned:
    """One of them, at its time."""

    at: float
    """Seconds from the beginning."""
    kind: Disturbance
    extent: float
    """How much of it, from 0 to 1."""


def plan_disturbances(seed: int, seconds: float, kinds: Sequence[Disturbance]) -> list[Planned]:
    """
    Return what goes wrong in a run of so many seconds, in the order of time.

    :param kinds: what can go wrong all the time. The second scheduler comes and goes as well, but in the
        middle half only: in the first and in the last quarter, which are compared, one scheduler has all the
        work, the same.
    """
    dice = random.Random(seed)
    weather = [Planned(at, dice.choice(kinds), dice.random()) for at in _times(dice, 0, seconds)]
    schedulers = _second_scheduler(dice, seconds / 4, seconds * 3 / 4)
    return sorted([*weather, *schedulers], key=lambda planned: planned.at)


def _times(dice: random.Random, start: float, end: float) -> Iterator[float]:
    while (start := start + dice.uniform(*PAUSE)) < end:
        yield start


def _second_scheduler(dice: random.Random, start: float, end: float) -> Iterator[Planned]:
    while start + LIFE[0] <= end:
        yield Planned(start, Disturbance.SCHEDULER_STARTED, dice.random())
        death = min(start + dice.uniform(*LIFE), end)
        yield Planned(death, Disturbance.SCHEDULER_KILLED, dice.random())
        start = death + dice.uniform(*PAUSE)
