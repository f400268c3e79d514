# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What launches say together: when an outage opens, who may try, and when it is over."""

from __future__ import annotations

from itertools import pairwise

import pytest

from airflow_resilience.outages import (
    EVIDENCE_WINDOW,
    PROBE_TIMEOUT,
    WATCHED_AFTER,
    Dependency,
    DependencyKind,
    Outage,
    OutageLimits,
    OutageState,
)

LIMITS = OutageLimits(threshold=3, max_wait=3600.0)


def opened(now: float = 2.0) -> Outage:
    """Return an outage that three task instances have opened at that time."""
    outage = Outage(LIMITS, 0.0)
    for number, at in enumerate((0.0, now / 2, now)):
        outage.failed(f"task-{number}", f"launch-{number}", began=-10.0, now=at)
    return outage


def probing(now: float = 20.0) -> Outage:
    outage = opened()
    assert outage.may_go(5, now) == 1
    outage.go("probe", now)
    return outage


def recovering(now: float = 21.0) -> Outage:
    outage = probing()
    outage.started(began=20.0, now=now)
    return outage


def holds(outage: Outage, launch_id: str = "another", *, was_resumed: bool = False, held: int = 1) -> bool:
    return outage.holds(launch_id, was_resumed=was_resumed, are_held=held > 0)


@pytest.mark.parametrize(
    "dependency",
    [
        Dependency(DependencyKind.REGISTRY, "registry.example.com:5000"),
        Dependency(DependencyKind.QUOTA, "team-a"),
        Dependency(DependencyKind.AIRFLOW_API),
    ],
)
def test_a_dependency_is_read_back(dependency: Dependency) -> None:
    assert Dependency.parse(str(dependency)) == dependency


def test_three_task_instances_open_it() -> None:
    outage = Outage(LIMITS, 0.0)
    for number in range(2):
        outage.failed(f"task-{number}", f"launch-{number}", began=-10.0, now=number)
        assert not outage.is_open
        assert not holds(outage)
    outage.failed("task-2", "launch-2", began=-10.0, now=2.0)
    assert (outage.state, outage.since, outage.subjects) == (OutageState.OPEN, 0.0, 3)
    assert holds(outage, held=0)


def test_one_task_instance_opens_nothing_however_often_it_fails() -> None:
    outage = Outage(LIMITS, 0.0)
    for number in range(10):
        outage.failed("task", f"launch-{number}", began=0.0, now=number)
    assert outage.state is OutageState.SUSPECTED


def test_failures_long_apart_open_nothing() -> None:
    outage = Outage(LIMITS, 0.0)
    for number in range(4):
        at = number * (EVIDENCE_WINDOW / 2 + 1)
        outage.failed(f"task-{number}", f"launch-{number}", began=0.0, now=at)
    assert outage.state is OutageState.SUSPECTED


def test_a_launch_that_gets_through_meanwhile_speaks_against_it() -> None:
    outage = Outage(LIMITS, 0.0)
    outage.failed("task-0", "launch-0", began=0.0, now=0.0)
    outage.failed("task-1", "launch-1", began=0.0, now=1.0)
    outage.started(began=0.0, now=2.0)
    outage.failed("task-2", "launch-2", began=0.0, now=3.0)
    assert outage.state is OutageState.SUSPECTED


def test_the_evidence_is_forgotten() -> None:
    outage = Outage(LIMITS, 0.0)
    outage.failed("task", "launch", began=0.0, now=0.0)
    assert outage.tick(0, probe_lives=False, now=EVIDENCE_WINDOW)
    assert not outage.tick(0, probe_lives=False, now=EVIDENCE_WINDOW + 1)


def test_one_probe_at_a_time_is_made_less_and_less_often() -> None:
    outage, now, made = opened(), 2.0, []
    while now < 3590.0:
        now += 1.0
        outage.tick(5, probe_lives=outage.probe is not None, now=now)
        if outage.may_go(5, now):
            outage.go("probe", now)
            made.append(now)
            assert not holds(outage, "probe")
            assert holds(outage)
            assert outage.may_go(5, now + 100) == 0
            outage.failed("task", "probe", began=now, now=now)
    assert made[0] == 17.0
    intervals = [later - earlier for earlier, later in pairwise(made)]
    # A tenth of the outage's age, in whole turns.
    assert intervals[:12] == [15.0] * 9 + [16.0, 17.0, 19.0]
    assert intervals[-3:] == [120.0] * 3


def test_the_failure_of_another_launch_changes_nothing_about_the_probe() -> None:
    outage = probing()
    outage.failed("task-9", "launch-9", began=0.0, now=21.0)
    assert (outage.probe, outage.may_go(5, 22.0)) == ("probe", 0)


def test_a_probe_that_is_lost_is_followed_by_another() -> None:
    outage = probing()
    outage.tick(5, probe_lives=False, now=21.0)
    assert outage.may_go(5, 34.0) == 0
    assert outage.may_go(5, 35.0) == 1


def test_a_probe_that_hangs_is_followed_by_another() -> None:
    outage = probing(20.0)
    outage.tick(5, probe_lives=True, now=20.0 + PROBE_TIMEOUT - 1)
    assert outage.may_go(5, 400.0) == 0
    outage.tick(5, probe_lives=True, now=20.0 + PROBE_TIMEOUT)
    assert outage.may_go(5, 400.0) == 1


def test_a_hint_makes_the_next_probe_at_once() -> None:
    outage = opened()
    outage.hint(3.0)
    assert outage.may_go(5, 3.0) == 1


def test_a_hint_that_comes_during_a_probe_is_not_lost() -> None:
    outage = probing(20.0)
    outage.hint(21.0)
    outage.failed("task", "probe", began=20.0, now=22.0)
    assert outage.may_go(5, 22.0) == 1
    outage = recovering(21.0)
    outage.hint(23.0)
    outage.failed("task", "launch", began=22.0, now=24.0)
    assert (outage.state, outage.may_go(5, 24.0)) == (OutageState.OPEN, 1)


def test_a_launch_from_before_the_outage_does_not_end_it() -> None:
    outage = opened()
    outage.started(began=-1.0, now=5.0)
    assert outage.state is OutageState.OPEN


def test_held_launches_go_at_a_rate_that_doubles() -> None:
    outage, gone, now = recovering(21.0), [], 21.0
    while sum(gone) < 300:
        going = outage.may_go(300 - sum(gone), now)
        for _ in range(going):
            outage.go("launch", now)
        gone.append(going)
        now += 1.0
    assert gone == [1, 2, 4, 8, 16, 32, 64, 128, 45]


def test_a_new_launch_waits_behind_those_that_are_held() -> None:
    outage = recovering()
    assert holds(outage)
    assert not holds(outage, was_resumed=True)
    assert not holds(outage, held=0)


def test_a_failure_on_the_way_opens_it_again() -> None:
    outage = recovering(21.0)
    outage.failed("task-9", "launch-9", began=21.5, now=30.0)
    assert (outage.state, outage.since, outage.subjects) == (OutageState.OPEN, 30.0, 1)
    assert outage.may_go(5, 44.0) == 0
    assert outage.may_go(5, 45.0) == 1


def test_a_late_failure_of_an_earlier_launch_does_not() -> None:
    outage = recovering(21.0)
    outage.failed("task-9", "launch-9", began=0.0, now=30.0)
    assert outage.state is OutageState.RECOVERING
    assert outage.is_open


def test_it_is_over_a_while_after_the_last_launch_has_gone() -> None:
    outage = recovering(21.0)
    assert outage.tick(5, probe_lives=False, now=200.0)
    assert outage.tick(0, probe_lives=False, now=200.0 + WATCHED_AFTER)
    assert not outage.tick(0, probe_lives=False, now=201.0 + WATCHED_AFTER)


def test_nothing_is_held_for_longer_than_the_longest_wait() -> None:
    outage = opened()
    outage.failed("task-9", "launch-9", began=0.0, now=3500.0)
    outage.tick(5, probe_lives=False, now=3599.0)
    assert outage.state is OutageState.OPEN
    outage.tick(5, probe_lives=False, now=3600.0)
    assert outage.state is OutageState.EXHAUSTED
    assert not outage.is_open
    assert outage.may_go(300, 3600.0) == 300
    assert not holds(outage, held=0)


def test_a_broken_configuration_is_not_waited_for_twice() -> None:
    outage = opened()
    outage.failed("task-9", "launch-9", began=0.0, now=3500.0)
    outage.tick(5, probe_lives=False, now=3600.0)
    outage.failed("task-9", "launch-10", began=3601.0, now=3602.0)
    assert (outage.state, outage.is_open) == (OutageState.EXHAUSTED, False)
    assert outage.tick(0, probe_lives=False, now=3602.0 + LIMITS.max_wait)
    outage.started(began=3700.0, now=3701.0)
    assert outage.state is OutageState.RECOVERING


def test_an_outage_that_no_launch_needs_any_more_is_forgotten() -> None:
    outage = opened(2.0)
    assert outage.tick(0, probe_lives=False, now=2.0 + EVIDENCE_WINDOW)
    assert not outage.tick(0, probe_lives=False, now=3.0 + EVIDENCE_WINDOW)


@pytest.mark.parametrize(("since", "state"), [(-600.0, OutageState.OPEN), (-3600.0, OutageState.EXHAUSTED)])
def test_what_another_scheduler_knew_is_known(since: float, state: OutageState) -> None:
    outage = Outage(LIMITS, 0.0)
    outage.restore(since, 0.0)
    assert (outage.state, outage.since) == (state, since)
