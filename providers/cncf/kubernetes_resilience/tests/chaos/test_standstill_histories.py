# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A scheduler stands still, another one adopts its task instances, and it acts on what it remembers."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import RETRY_INTERVAL

from .test_histories import (
    have_it_back,
    stand_still_while_another_launches,
    stand_still_with_creations_under_way,
    start,
    succeeds_in_the_first_try,
    take_them_back,
)


def begin(by_hand):
    """Give the machine: two task instances that are scheduled."""
    return by_hand(1)


def take_for_dead(chaos, scheduler):
    """Have a scheduler stand still, and another one adopt its task instances."""
    chaos.world.overtake(scheduler)
    chaos.flush()


def have_unanswered_creations_adopted(chaos):
    """Have two pods be created without an answer, and be adopted; return their first scheduler."""
    first = chaos.world.schedulers[0]
    chaos.enqueue_all()
    chaos.decide(first)
    first.runtime.carry_out_all("unanswered")
    take_for_dead(chaos, first)
    return first


def test_another_has_adopted_what_was_taken_back_before_it_was_found(chaos, world):
    """Its scheduler stands still while Airflow queues it again, and learns of the pod when it comes back."""
    first = world.schedulers[0]
    chaos.enqueue_all()
    chaos.decide(first)
    first.runtime.carry_out_all("unanswered")
    for ti in chaos.tis("queued"):
        world.revoke(ti)
    chaos.enqueue_all()
    world.turn(first)
    take_for_dead(chaos, first)
    first.stream.clear()
    world.resume(first)
    first.runtime.carry_out_all()
    world.turn(first)
    world.turn(first)
    first.runtime.carry_out_all()
    nothing_was_deleted(chaos)


def nothing_was_deleted(chaos):
    chaos.world.check()
    assert (len(chaos.world.pods), [pod.name for pod in chaos.world.pods if pod.asked_at]) == (2, [])
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("sees", [True, False])
def test_another_has_adopted_what_was_created_without_an_answer(chaos, world, sees, runs):
    """Whether it learns of the pod from its watch, and late, or only by looking for it."""
    first = have_unanswered_creations_adopted(chaos)
    if runs:
        start(chaos)
    if not sees:
        first.relist()
    world.resume(first)
    world.turn(first)
    world.pass_time(40)
    world.turn(first)
    chaos.flush()
    chaos.flush()
    nothing_was_deleted(chaos)


@pytest.mark.parametrize("runs", [True, False])
def test_it_adopts_what_it_has_created_without_an_answer(chaos, world, runs):
    """Another one had it meanwhile, and has died."""
    first = have_unanswered_creations_adopted(chaos)
    if runs:
        start(chaos)
    first.relist()
    have_it_back(chaos, first)
    chaos.flush()
    nothing_was_deleted(chaos)


def test_an_image_can_be_pulled_after_another_has_adopted_the_pod(chaos, world):
    chaos.launch_all()
    first = world.schedulers[0]
    pods = chaos.pods("Pending")
    for pod in pods:
        world.stall(pod)
    while first.stream:
        first.deliver()
    heir = world.pause(first)
    world.pass_time(40)
    for pod in pods:
        world.recover(pod)
    world.adopt_orphans(heir)
    chaos.flush()
    world.resume(first)
    world.turn(first)
    first.runtime.carry_out_all()
    nothing_was_deleted(chaos)


@pytest.mark.parametrize("lists", [1, 2])
def test_another_has_adopted_what_was_listed_for_an_adoption_that_was_called_off(chaos, world, lists):
    """The first of two lists takes so long that the other is asked for meanwhile."""
    chaos.launch_all()
    world.is_away = True
    world.crash(world.schedulers[0])
    (first,) = world.schedulers
    for ti in chaos.tis("queued"):
        world.revoke(ti)
    chaos.enqueue_all()
    if lists == 2:
        world.pass_time(int(RETRY_INTERVAL))
    world.turn(first)
    world.is_away = False
    world.pass_time(20)
    world.turn(first)
    first.runtime.carry_out_all()
    take_for_dead(chaos, first)
    world.resume(first)
    world.turn(first)
    first.runtime.carry_out_all()
    nothing_was_deleted(chaos)


def test_it_adopts_what_another_has_launched_while_its_own_creation_was_under_way(chaos, world):
    chaos.launch_all()
    first = stand_still_while_another_launches(chaos)
    theirs = chaos.living()
    start(chaos)
    have_it_back(chaos, first)
    chaos.flush()
    assert not any(pod.asked_at for pod in theirs)
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("starts", ["before it is found", "before it is deleted", "never"])
def test_its_own_creation_is_carried_out_as_it_has_its_task_instances_back(chaos, world, starts):
    """The creations are cancelled in vain. Whether a worker has started by then is looked at first."""
    chaos.launch_all()
    first, heir = stand_still_with_creations_under_way(chaos)
    take_them_back(chaos, first, heir)
    first.runtime.carry_out_all()
    if starts == "before it is found":
        start_all(chaos)
    chaos.decide(first)
    first.runtime.carry_out_all()
    chaos.decide(first)
    if starts == "before it is deleted":
        start_all(chaos)
    chaos.flush()
    world.check()
    running = [ti.hostname for ti in chaos.tis("running")]
    assert running == ([] if starts == "never" else [pod.name for pod in chaos.living()])
    succeeds_in_the_first_try(chaos)


def start_all(chaos):
    """Have the workers of all pods report that they run, and no scheduler learn of it."""
    for pod in chaos.pods("Pending"):
        chaos.world.run(pod)
        chaos.world.report_start(pod)
