# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""When something goes wrong beside the pods: planned with a seed, so that it can be planned again. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle

from soak.settings import DEAD_AFTER, QUEUED_TIMEOUT

PAUSE = (6.0, 16.0)
"""Seconds between two of them, at least and at most."""

LIFE = (20.0, 60.0)
"""Seconds between the start of the second scheduler and its end."""

TAKEOVER = 60.0
"""Seconds that it takes to let the second scheduler take over from the first."""

CATCH_UP = 60.0
"""Seconds in which what nobody has launched meanwhile is caught up with, before the last quarter begins."""

READY = 15.0
"""Seconds after its start in which the second scheduler is at work."""

LONG_RUN = 1500.0
"""Seconds; a run that lasts so long has room for an outage that is long."""

LONG_OUTAGE = 3.0 * QUEUED_TIMEOUT + 30
"""Seconds. The third time that a task is found stuck in the queue, Airflow fails it."""


class Disturbance(StrEnum):
    """What can go wrong."""

    WATCHES_CUT = "watches cut"
    WATCH_EXPIRED = "watch expired (410)"
    EVENTS_REPEATED = "watch events repeated"
    TOO_MANY_REQUESTS = "burst of 429"
    UNAUTHORIZED = "burst of 401 to creates"
    FORBIDDEN = "burst of 403 to creates"
    REPLIES_LOST = "replies lost"
    DELETIONS_LATE = "deletions held back"
    TASK_CLEARED = "running task cleared"
    API_SERVER_KILLED = "API server killed"
    API_SERVER_GONE = "API server killed for long"
    API_SERVER_BACK = "API server back after long"
    SCHEDULER_STARTED = "2nd scheduler started"
    SCHEDULER_KILLED = "2nd scheduler killed"
    SCHEDULER_PAUSED = "1st scheduler paused"
    SCHEDULER_RESUMED = "1st scheduler resumed"
    SCHEDULER_KILLED_AT_RELABEL = "2nd scheduler killed at a relabel"


SCHEDULER_EVENTS = (
    Disturbance.SCHEDULER_STARTED,
    Disturbance.SCHEDULER_KILLED,
    Disturbance.SCHEDULER_PAUSED,
    Disturbance.SCHEDULER_RESUMED,
    Disturbance.SCHEDULER_KILLED_AT_RELABEL,
)
LONG_OUTAGE_EVENTS = (Disturbance.API_SERVER_GONE, Disturbance.API_SERVER_BACK)

TAKEOVERS = (
    (
        (READY, Disturbance.SCHEDULER_PAUSED),
        # By then it has counted as dead for ten seconds.
        (READY + DEAD_AFTER + 10, Disturbance.SCHEDULER_RESUMED),
        (TAKEOVER, Disturbance.SCHEDULER_KILLED),
    ),
    (
        (READY, Disturbance.SCHEDULER_PAUSED),
        # Some time before it counts as dead: the second waits to be killed from then on.
        (READY + DEAD_AFTER / 2, Disturbance.SCHEDULER_KILLED_AT_RELABEL),
    ),
)
"""What happens so many seconds after the start of a second scheduler that takes over."""


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
        work, the same. So does the long outage, if the API server can be killed and the run is a long one;
        it ends early enough for the work to be caught up with.
    """
    dice = random.Random(seed)
    weather = [Planned(at, dice.choice(kinds), dice.random()) for at in _times(dice, 0, seconds)]
    schedulers = _second_scheduler(dice, seconds / 4, seconds * 3 / 4)
    outage = []
    if Disturbance.API_SERVER_KILLED in kinds and seconds >= LONG_RUN:
        outage = _long_outage(dice, seconds / 4, seconds / 2)
        gone, back = outage
        weather = [planned for planned in weather if not gone.at <= planned.at <= back.at]
    return sorted([*weather, *schedulers, *outage], key=lambda planned: planned.at)


def _times(dice: random.Random, start: float, end: float) -> Iterator[float]:
    while (start := start + dice.uniform(*PAUSE)) < end:
        yield start


def _second_scheduler(dice: random.Random, start: float, end: float) -> Iterator[Planned]:
    # In turn: chance alone would leave one out of many a run.
    for takeover in cycle(dice.sample(((), *TAKEOVERS), 1 + len(TAKEOVERS))):
        if start + LIFE[0] > end:
            return
        yield Planned(start, Disturbance.SCHEDULER_STARTED, dice.random())
        if takeover and start + TAKEOVER + CATCH_UP <= end:
            death = start + TAKEOVER
            for after, kind in takeover:
                yield Planned(start + after, kind, dice.random())
        else:
            death = min(start + dice.uniform(*LIFE), end)
            yield Planned(death, Disturbance.SCHEDULER_KILLED, dice.random())
        start = death + dice.uniform(*PAUSE)


def _long_outage(dice: random.Random, start: float, end: float) -> list[Planned]:
    gone = dice.uniform(start, end - LONG_OUTAGE)
    times = (gone, gone + LONG_OUTAGE)
    return [Planned(at, kind, dice.random()) for at, kind in zip(times, LONG_OUTAGE_EVENTS, strict=True)]
