# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods of launches that their scheduler has released, and that come late or get another label."""

from __future__ import annotations

import pytest

from .test_histories import (
    stand_still_while_another_launches,
    stand_still_with_creations_under_way,
    succeeds_in_the_first_try,
    take_them_back,
)
from .test_standstill_histories import start_all


def begin(by_hand):
    """Give the machine: two task instances that are scheduled."""
    return by_hand(1)


def carry_out(scheduler, name, outcome="ok"):
    """Carry out the requests of one kind that a scheduler has asked for by now."""
    commands = scheduler.runtime.commands
    for _ in range(sum(function.__name__ == name for function, _ in commands)):
        index = next(i for i, (function, _) in enumerate(commands) if function.__name__ == name)
        scheduler.runtime.carry_out(index, outcome)


def have_them_back(chaos):
    """Have a scheduler adopt back what it launches, while its create calls are under way; return it."""
    chaos.launch_all()
    first, heir = stand_still_with_creations_under_way(chaos)
    take_them_back(chaos, first, heir)
    return first


def have_them_back_from_one_that_has_launched(chaos):
    """Have a scheduler adopt the pods of another one, and its own old create calls be carried out then."""
    chaos.launch_all()
    first = stand_still_while_another_launches(chaos)
    (heir,) = chaos.world.schedulers
    take_them_back(chaos, first, heir)
    theirs = chaos.living()
    complete_adoption(chaos, first)
    carry_out(first, "create")
    return first, theirs, [pod for pod in chaos.living() if pod not in theirs]


def complete_adoption(chaos, scheduler):
    chaos.world.turn(scheduler)
    carry_out(scheduler, "adopt")


def lose_the_thread_with_the_calls(chaos, scheduler):
    """Have the create calls be carried out, and the Kubernetes thread crash before anybody learns of it."""
    world = chaos.world
    for function, args in list(scheduler.runtime.commands):
        if function.__name__ == "create":
            world.first_calls.setdefault(args[0], world.now)
            world.launch(args[1])
    scheduler.runtime.commands.clear()
    scheduler.stream.clear()
    scheduler.runtime.is_alive = False
    world.turn(scheduler)


def have_a_pod_seen_before_it_is_found(chaos):
    """Have the informer tell of pods that calls without an answer have made: Pending, then started."""
    first = have_them_back(chaos)
    complete_adoption(chaos, first)
    lose_the_thread_with_the_calls(chaos, first)
    while first.stream:
        first.deliver()
    chaos.world.turn(first)
    for pod in chaos.pods("Pending"):
        chaos.world.run(pod)
    chaos.decide(first)
    return first


def test_a_pod_in_which_the_task_runs_is_found_twice(chaos, world):
    """Once by its creation and once by looking for it, which is answered when it was left alone."""
    first, _, ours = have_them_back_from_one_that_has_launched(chaos)
    world.turn(first)
    for pod in ours:
        world.run(pod)
        world.report_start(pod)
    carry_out(first, "delete")
    world.turn(first)
    carry_out(first, "look_for")
    world.turn(first)
    chaos.flush()
    assert not any(pod.asked_at for pod in ours)
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("runs", ["in ours", "in theirs"])
def test_a_pod_of_an_old_call_starts_beside_that_which_is_followed(chaos, world, runs):
    """The one that is followed stays that, whichever runs the task."""
    first, theirs, ours = have_them_back_from_one_that_has_launched(chaos)
    carry_out(first, "look_for")
    chaos.decide(first)
    for pod in ours:
        world.run(pod)
        if runs == "in ours":
            world.report_start(pod)
    carry_out(first, "delete")
    chaos.decide(first)
    assert all(pod.is_alive and not pod.asked_at for pod in theirs)
    world.check()
    succeeds_in_the_first_try(chaos)


def test_a_pod_whose_create_call_had_no_answer_is_found_after_an_outage(chaos, world):
    first = have_them_back(chaos)
    for _ in range(3):
        world.turn(first)
    carry_out(first, "create", "unanswered")
    world.begin_outage()
    chaos.decide(first)
    world.pass_time(130)
    world.turn(first)
    chaos.enqueue_all()
    world.turn(first)
    start_all(chaos)
    world.end_outage()
    carry_out(first, "look_for")
    world.turn(first)
    chaos.flush()
    succeeds_in_the_first_try(chaos)


def stand_still_while_another_adopts(chaos, scheduler):
    """Have a scheduler stand still until another one adopts its pods, which recover; return that one."""
    world = chaos.world
    heir = world.pause(scheduler)
    world.pass_time(40)
    for pod in chaos.pods("Pending"):
        world.recover(pod)
    world.adopt_orphans(heir)
    return heir


@pytest.mark.parametrize("starts", [True, False])
def test_a_pod_of_an_old_call_is_adopted_by_another_before_it_is_deleted(chaos, world, starts):
    """Its scheduler stands still once more, with the deletion under way. That one has labelled it by then."""
    first = have_them_back(chaos)
    complete_adoption(chaos, first)
    first.runtime.carry_out_all()
    chaos.decide(first)
    world.overtake(first)
    chaos.flush()
    if starts:
        start_all(chaos)
    world.resume(first)
    first.runtime.carry_out_all()
    chaos.flush()
    assert not any(pod.asked_at for pod in world.pods if pod.is_alive)
    succeeds_in_the_first_try(chaos)


def test_a_pod_that_was_given_up_on_is_adopted_by_another_before_it_is_deleted(chaos, world):
    chaos.launch_all()
    first = world.schedulers[0]
    for pod in chaos.pods("Pending"):
        world.stall(pod)
    chaos.decide(first)
    stand_still_while_another_adopts(chaos, first)
    chaos.flush()
    world.resume(first)
    first.runtime.carry_out_all()
    assert [pod.is_deleting for pod in chaos.living()] == [False, False]
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("runs", [True, False])
def test_a_pod_that_was_seen_before_it_was_found_is_followed_to_its_end(by_hand, runs):
    """The Kubernetes thread has crashed with its create call, which nobody answers any more."""
    chaos = by_hand(3)
    world = chaos.world
    first = have_a_pod_seen_before_it_is_found(chaos)
    registry = first.registry
    assert [launch.state for launch in registry] == ["started", "started"]
    if runs:
        start_all(chaos)
    for pod in chaos.living():
        world.remove(pod)
    for _ in range(3):
        chaos.flush()
    chaos.come_to_rest()


def test_nobody_waits_for_a_pod_that_is_followed_again(by_hand):
    chaos = by_hand(3)
    first = have_a_pod_seen_before_it_is_found(chaos)
    registry = first.registry
    assert [registry.departing_of(launch.key) for launch in registry] == [[], []]
    chaos.flush()
    assert [registry.departing_of(launch.key) for launch in registry] == [[], []]


def test_a_pod_of_an_old_call_that_is_followed_again_is_removed(by_hand):
    chaos = by_hand(3)
    world = chaos.world
    first = have_them_back(chaos)
    complete_adoption(chaos, first)
    carry_out(first, "create")
    world.turn(first)
    start_all(chaos)
    carry_out(first, "delete")
    world.turn(first)
    assert [launch.state for launch in first.registry] == ["started", "started"]
    for pod in chaos.living():
        world.remove(pod)
    chaos.flush()
    chaos.flush()
    chaos.come_to_rest()


def label_in_vain(chaos):
    """Have pods be given up on whose scheduler stood still, while an adoption that has failed labels them."""
    world = chaos.world
    chaos.launch_all()
    first = world.schedulers[0]
    for pod in chaos.pods("Pending"):
        world.stall(pod)
    while first.stream:
        first.deliver()
    heir = world.overtake(first, commits=False)
    world.kill_scheduler(heir)
    world.resume(first)
    world.turn(first)
    return first


def test_a_pod_with_a_label_in_vain_is_evicted_before_it_has_started(by_hand):
    """It has no status of a container then, and is not deleted as one that has not started."""
    chaos = by_hand(3)
    world = chaos.world
    first = label_in_vain(chaos)
    while first.stream:
        first.deliver()
    world.turn(first)
    carry_out(first, "confirm")
    world.turn(first)
    for pod in chaos.pods("Pending"):
        world.evict_before_its_start(pod)
    for _ in range(4):
        first.runtime.carry_out_all()
        world.turn(first)
        world.pass_time(55)
    assert len(chaos.pods("Pending")) == 2
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("reports", ["before it is found", "after that", "never"])
def test_a_pod_with_a_label_in_vain_starts(by_hand, reports):
    chaos = by_hand(3)
    world = chaos.world
    first = label_in_vain(chaos)
    for pod in chaos.pods("Pending"):
        world.recover(pod)
        world.run(pod)
        if reports == "before it is found":
            world.report_start(pod)
    first.runtime.carry_out_all()
    world.turn(first)
    assert [launch.name for launch in first.registry] == [pod.name for pod in chaos.living()]
    if reports == "after that":
        for pod in chaos.living():
            world.report_start(pod)
    for _ in range(4):
        world.turn(first)
        world.pass_time(35)
        first.runtime.carry_out_all()
    assert len(world.pods) == 2
    succeeds_in_the_first_try(chaos)


def test_a_pod_with_a_label_in_vain_was_revoked(by_hand):
    """It is deleted whatever it does and has; the next launch waits for that."""
    chaos = by_hand(3)
    world = chaos.world
    first = label_in_vain(chaos)
    first.runtime.carry_out_all()
    for ti in chaos.tis("queued"):
        world.revoke(ti)
    world.refuses_deletions = True
    world.turn(first)
    for ti in chaos.tis("scheduled"):
        world.enqueue(first, ti)
    for _ in range(3):
        world.turn(first)
        world.pass_time(35)
        first.runtime.carry_out_all()
    world.refuses_deletions = False
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("starts", [True, False])
def test_a_pod_with_a_label_in_vain_is_adopted_by_another_before_it_is_deleted(by_hand, starts):
    """Its scheduler stands still once more, with the deletion under way, and a third one labels it."""
    chaos = by_hand(3)
    world = chaos.world
    first = label_in_vain(chaos)
    for request in ("delete", "confirm"):
        carry_out(first, request)
        chaos.decide(first)
    heir = stand_still_while_another_adopts(chaos, first)
    complete_adoption(chaos, heir)
    if starts:
        start_all(chaos)
    world.resume(first)
    first.runtime.carry_out_all()
    assert [pod.is_deleting for pod in chaos.living()] == [False, False]
    succeeds_in_the_first_try(chaos)
