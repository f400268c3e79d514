# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise

import pytest

from soak.disturbances import (
    LIFE,
    LONG_OUTAGE,
    LONG_OUTAGE_EVENTS,
    LONG_RUN,
    SCHEDULER_EVENTS,
    TAKEOVERS,
    Disturbance,
    Planned,
    plan_disturbances,
)
from soak.settings import DEAD_AFTER, QUEUED_TIMEOUT

KINDS = [kind for kind in Disturbance if kind not in (*SCHEDULER_EVENTS, *LONG_OUTAGE_EVENTS)]
STARTED, KILLED = Disturbance.SCHEDULER_STARTED, Disturbance.SCHEDULER_KILLED
LIVES = [(STARTED, KILLED), *((STARTED, *(kind for _, kind in takeover)) for takeover in TAKEOVERS)]
"""What can happen from the start of a second scheduler to its end."""


def lives(planned: list[Planned]) -> list[list[Planned]]:
    """What happens to the schedulers, from each start of a second one to the next."""
    found: list[list[Planned]] = []
    for event in planned:
        if event.kind is STARTED:
            found.append([])
        if event.kind in SCHEDULER_EVENTS:
            found[-1].append(event)
    return found


def test_the_same_seed_plans_the_same() -> None:
    assert plan_disturbances(1, 600, KINDS) == plan_disturbances(1, 600, KINDS)
    assert plan_disturbances(1, 600, KINDS) != plan_disturbances(2, 600, KINDS)


@pytest.mark.parametrize("seconds", [120, 1800])
@pytest.mark.parametrize("seed", range(20))
def test_the_second_scheduler_comes_and_goes_in_the_middle_half_only(seed: int, seconds: float) -> None:
    found = lives(plan_disturbances(seed, seconds, KINDS))
    assert found
    for life in found:
        assert tuple(event.kind for event in life) in LIVES
        assert seconds / 4 <= life[0].at < life[-1].at <= seconds * 3 / 4
        assert life[-1].at - life[0].at >= LIFE[0]
    for life, following in pairwise(found):
        assert life[-1].at < following[0].at


def test_the_first_scheduler_is_paused_until_the_second_has_taken_over() -> None:
    planned = plan_disturbances(1, 1800, KINDS)
    at = {kind: [event.at for event in planned if event.kind is kind] for kind in Disturbance}
    for end in at[Disturbance.SCHEDULER_RESUMED]:
        begin = max(time for time in at[Disturbance.SCHEDULER_PAUSED] if time < end)
        assert end - begin > DEAD_AFTER
    for wait in at[Disturbance.SCHEDULER_KILLED_AT_RELABEL]:
        begin = max(time for time in at[Disturbance.SCHEDULER_PAUSED] if time < wait)
        assert wait - begin < DEAD_AFTER


@pytest.mark.parametrize(("seconds", "possible"), [(120, {STARTED, KILLED}), (300, {*SCHEDULER_EVENTS})])
def test_a_takeover_needs_time_to_catch_up_before_the_last_quarter(
    seconds: float, possible: set[Disturbance]
) -> None:
    kinds = {event.kind for seed in range(20) for event in plan_disturbances(seed, seconds, KINDS)}
    assert kinds & {*SCHEDULER_EVENTS} == possible


@pytest.mark.parametrize("seed", range(20))
def test_in_a_long_run_the_api_server_is_away_for_long_and_for_nothing_else(seed: int) -> None:
    planned = plan_disturbances(seed, LONG_RUN, KINDS)
    gone, back = [event.at for event in planned if event.kind in LONG_OUTAGE_EVENTS]
    assert LONG_RUN / 4 <= gone < back <= LONG_RUN / 2
    assert back - gone == pytest.approx(LONG_OUTAGE)
    assert LONG_OUTAGE > 3 * QUEUED_TIMEOUT
    meanwhile = {event.kind for event in planned if gone < event.at < back}
    assert meanwhile <= {*SCHEDULER_EVENTS}


def test_a_short_run_has_no_long_outage() -> None:
    planned = plan_disturbances(1, LONG_RUN - 1, KINDS)
    assert not {event.kind for event in planned} & {*LONG_OUTAGE_EVENTS}


def test_everything_goes_wrong_in_a_long_run_and_in_order() -> None:
    planned = plan_disturbances(1, 1800, KINDS)
    assert {event.kind for event in planned} == set(Disturbance)
    times = [event.at for event in planned]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 1800


def test_what_is_not_possible_does_not_happen() -> None:
    planned = plan_disturbances(1, 1800, [Disturbance.WATCHES_CUT])
    assert {event.kind for event in planned} == {Disturbance.WATCHES_CUT, *SCHEDULER_EVENTS}
