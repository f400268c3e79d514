# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Short histories of workers that are told to go, with an infrastructure budget of two.

Nothing in these workers keeps them from reporting a failure then, unless it is said.
"""

from __future__ import annotations

import pytest

from .poison import Poison
from .scheduler import Killed
from .test_execution_histories import BUDGET, lose, runs_of_the_first


@pytest.fixture
def chaos(by_hand):
    """Give the machine: two task instances that run."""
    chaos = by_hand(1, BUDGET)
    chaos.begin(starts=True)
    return chaos


def drain(chaos, *, retries=1):
    """Have the first task instance's worker be told to go; return its pod."""
    chaos.world.give_retries(chaos.world.tis[0], retries)
    return tell_to_go(chaos)


def tell_to_go(chaos):
    pod = chaos.pod_of(chaos.world.tis[0])
    chaos.world.ask_to_end(pod)
    chaos.flush()
    return pod


def report_its_termination(chaos, pod):
    chaos.world.report_termination(pod)
    chaos.world.end_in_good_order(pod)
    chaos.flush()


def outcome(world):
    """Say what has become of the first task instance: its state, its try, and how many it may have."""
    (ti, other) = world.tis
    assert (other.state, other.try_number) == ("success", 1)
    return ti.state, ti.try_number, ti.max_tries + 1


@pytest.mark.parametrize("ends", ["well", "killed", "unseen"])
def test_a_worker_reports_its_own_termination(chaos, world, ends):
    pod = drain(chaos)
    world.report_termination(pod)
    if ends == "well":
        world.end_in_good_order(pod)
    else:
        world.finish_deletion(pod)
    if ends == "unseen":
        world.schedulers[0].relist()
    chaos.flush()
    chaos.flush()
    assert world.tis[0].state is None
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 3)


def test_a_guarded_worker_reports_nothing(chaos, world):
    world.finish_deletion(drain(chaos))
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 1, 2)
    assert runs_of_the_first(world) == 2


def test_a_worker_that_was_told_to_go_finishes(chaos, world):
    world.report(drain(chaos), "success")
    chaos.come_to_rest()
    assert outcome(world) == ("success", 1, 2)
    assert runs_of_the_first(world) == 1


def test_a_worker_that_was_told_to_go_reports_a_failure(chaos, world):
    """It may be the task's own. Nobody can tell."""
    pod = drain(chaos)
    world.report(pod, "failed")
    world.remove(pod)
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 3)


def test_a_worker_without_retries_reports_its_own_termination(chaos, world):
    """A failure that was reported for good stays one: callbacks have run."""
    report_its_termination(chaos, drain(chaos, retries=0))
    chaos.come_to_rest()
    assert outcome(world) == ("failed", 1, 1)
    assert runs_of_the_first(world) == 1


def test_a_worker_is_told_to_go_when_its_task_has_failed_by_itself(chaos, world):
    world.give_retries(world.tis[0], 1)
    pod = chaos.pod_of(world.tis[0])
    world.report_failure(pod)
    world.pass_time(5)
    world.ask_to_end(pod)
    chaos.flush()
    world.end_in_good_order(pod)
    chaos.flush()
    assert world.tis[0].state == "up_for_retry"
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 2)


@pytest.mark.parametrize(("how", "tries"), [("drain", 3), ("evicted", 3), ("unknown", 2), ("removed", 2)])
def test_a_failure_is_reported_as_the_pod_is_taken(chaos, world, how, tries):
    """Whoever was told to go may have failed for that; whoever was not has failed by itself."""
    world.give_retries(world.tis[0], 1)
    pod = chaos.pod_of(world.tis[0])
    world.take(pod, how, goes_on=True)
    chaos.flush()
    world.pass_time(1)
    world.report_in_time(pod, "failed")
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, tries)


def test_the_next_try_is_queued_when_the_pod_ends(chaos, world):
    pod = drain(chaos)
    world.report_termination(pod)
    world.schedule_next_tries(early=True)
    chaos.launch_all()
    world.end_in_good_order(pod)
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 2)


def test_airflow_schedules_the_next_try_while_it_is_given_back(chaos, world):
    pod = drain(chaos)
    world.schedule_in_the_middle(world.schedulers[0])
    report_its_termination(chaos, pod)
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 3)


@pytest.mark.parametrize("crashes", [True, False])
def test_tries_are_given_back_once_more_than_the_budget_has(chaos, world, crashes):
    world.give_retries(world.tis[0], 1)
    for _ in range(BUDGET + 1):
        assert world.tis[0].state == "running"
        report_its_termination(chaos, tell_to_go(chaos))
        if crashes:
            world.crash(world.schedulers[0])
        chaos.wait_for_replacements()
    chaos.come_to_rest()
    assert outcome(world) == ("success", BUDGET + 2, BUDGET + 2)


def test_losses_and_tries_that_are_given_back_have_one_budget(chaos, world):
    world.give_retries(world.tis[0], 1)
    lose(chaos)
    chaos.wait_for_replacements()
    for _ in range(BUDGET):
        report_its_termination(chaos, tell_to_go(chaos))
        chaos.wait_for_replacements()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 3, 3)


@pytest.mark.parametrize("error", [Killed(), Poison("release")], ids=["killed", "exception"])
def test_what_follows_a_try_that_was_given_back_fails(chaos, world, error):
    pod = drain(chaos)
    world.schedulers[0].fail_to_release(error)
    report_its_termination(chaos, pod)
    for _ in range(3):
        world.pass_time(5)
        chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 3)


@pytest.mark.parametrize("state", ["success", "failed"])
@pytest.mark.parametrize("is_given_back", [True, False])
def test_a_try_is_marked_that_its_worker_has_ended(chaos, world, state, is_given_back):
    pod = drain(chaos)
    world.report_termination(pod)
    if is_given_back:
        world.end_in_good_order(pod)
        chaos.flush()
    world.mark(world.tis[0], state)
    if not is_given_back:
        world.end_in_good_order(pod)
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == (state, 1, 3 if is_given_back else 2)


def test_a_scheduler_dies_between_the_report_of_a_termination_and_the_end_of_its_pod(chaos, world):
    """Airflow offers nobody a task that waits for its next try, so that costs a retry."""
    pod = drain(chaos)
    world.report_termination(pod)
    world.crash(world.schedulers[0])
    world.end_in_good_order(pod)
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 2)
