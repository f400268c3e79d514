# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Short histories of workers that are told to go, with an infrastructure budget of two.

Nothing in these workers keeps them from reporting a failure then, unless it is said. It is the task's own.
"""

from __future__ import annotations

import pytest

from .test_execution_histories import BUDGET, begin, runs_of_the_first  # noqa: F401 - where all begin


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
    chaos.world.report_failure(pod)
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
    world.report_failure(pod)
    if ends == "well":
        world.end_in_good_order(pod)
    else:
        world.finish_deletion(pod)
    if ends == "unseen":
        world.schedulers[0].relist()
    chaos.flush()
    chaos.flush()
    assert world.tis[0].state == "up_for_retry"
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 2)


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


@pytest.mark.parametrize("how", ["drain", "evicted", "unknown", "removed"])
def test_a_failure_is_reported_as_the_pod_is_taken(chaos, world, how):
    world.give_retries(world.tis[0], 1)
    pod = chaos.pod_of(world.tis[0])
    world.take(pod, how, goes_on=True)
    chaos.flush()
    world.pass_time(1)
    world.report_in_time(pod, "failed")
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 2)


def test_the_next_try_is_queued_when_the_pod_ends(chaos, world):
    pod = drain(chaos)
    world.report_failure(pod)
    world.schedule_next_tries(early=True)
    chaos.launch_all()
    world.end_in_good_order(pod)
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 2)


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_try_is_marked_that_its_worker_has_ended(chaos, world, state):
    pod = drain(chaos)
    world.report_failure(pod)
    world.mark(world.tis[0], state)
    world.end_in_good_order(pod)
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == (state, 1, 2)


def test_a_scheduler_dies_between_the_report_of_a_termination_and_the_end_of_its_pod(chaos, world):
    pod = drain(chaos)
    world.report_failure(pod)
    world.crash(world.schedulers[0])
    world.end_in_good_order(pod)
    chaos.flush()
    chaos.come_to_rest()
    assert outcome(world) == ("success", 2, 2)
