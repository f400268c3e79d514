# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from soak.disturbances import LIFE, SCHEDULER_EVENTS, Disturbance, plan_disturbances

KINDS = [kind for kind in Disturbance if kind not in SCHEDULER_EVENTS]


def test_the_same_seed_plans_the_same() -> None:
    assert plan_disturbances(1, 600, KINDS) == plan_disturbances(1, 600, KINDS)
    assert plan_disturbances(1, 600, KINDS) != plan_disturbances(2, 600, KINDS)


@pytest.mark.parametrize("seconds", [120, 1800])
@pytest.mark.parametrize("seed", range(20))
def test_the_second_scheduler_comes_and_goes_in_the_middle_half_only(seed: int, seconds: float) -> None:
    planned = plan_disturbances(seed, seconds, KINDS)
    events = [event for event in planned if event.kind in SCHEDULER_EVENTS]
    starts, deaths = events[::2], events[1::2]
    assert starts
    assert {event.kind for event in starts} == {Disturbance.SCHEDULER_STARTED}
    assert {event.kind for event in deaths} == {Disturbance.SCHEDULER_KILLED}
    for start, death in zip(starts, deaths, strict=True):
        assert seconds / 4 <= start.at < death.at <= seconds * 3 / 4
        assert death.at - start.at >= LIFE[0]


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
