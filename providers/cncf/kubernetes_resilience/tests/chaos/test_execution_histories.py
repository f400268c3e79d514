# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Short histories of what befalls tasks that run, with an infrastructure budget of two."""

from __future__ import annotations

import pytest

from .execution_machine import LOSSES
from .executions import HEARTBEAT_TIMEOUT
from .poison import Poison
from .scheduler import Killed
from .test_histories import stand_still_while_another_launches, succeeds_in_the_first_try

BUDGET = 2


def begin(by_hand):
    """Give the machine: two task instances that run."""
    chaos = by_hand(1, BUDGET)
    chaos.begin(starts=True)
    return chaos


def lose(chaos, how="drain", *, goes_on=False):
    """Have the infrastructure take the worker of the first task instance; return its pod."""
    pod = chaos.pod_of(chaos.world.tis[0])
    chaos.world.take(pod, how, goes_on=goes_on)
    chaos.flush()
    return pod


def runs_of_the_first(world):
    return len(world.runs_of((0, 1)))


# ---------------------------------------------------------------------- losses


def test_a_task_is_marked_while_its_worker_runs(chaos, world):
    world.mark(world.tis[0], "success")
    chaos.flush()
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("how", LOSSES)
def test_a_worker_is_lost(chaos, world, how):
    lose(chaos, how)
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


@pytest.mark.parametrize("crashes", [True, False])
def test_a_worker_is_lost_once_more_than_the_budget_has(chaos, world, crashes):
    for _ in range(BUDGET + 1):
        assert world.tis[0].state == "running"
        lose(chaos)
        if crashes:
            world.crash(world.schedulers[0])
        chaos.wait_for_replacements()
    assert [ti.state for ti in world.tis] == ["failed", "running"]
    assert runs_of_the_first(world) == BUDGET + 1


def test_the_process_of_a_task_is_killed_alone(chaos, world):
    world.end_unreported(chaos.pod_of(world.tis[0]))
    chaos.flush()
    world.pass_time(5)
    chaos.flush()
    assert [ti.state for ti in world.tis] == ["failed", "running"]
    assert runs_of_the_first(world) == 1


# ---------------------------------------------------------------------- workers that go on


@pytest.mark.parametrize("state", ["success", "failed", "deferred"])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_worker_goes_on_and_reports_when_it_was_lost(chaos, world, state, is_replaced):
    pod = lose(chaos, "removed", goes_on=True)
    world.pass_time(5)
    chaos.flush()
    if is_replaced:
        chaos.wait_for_replacements()
        assert world.tis[0].state == "running"
    assert not world.report(pod, state)
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("crashes", [True, False])
def test_a_report_is_under_way_when_the_pod_ends(chaos, world, crashes):
    pod = lose(chaos, goes_on=True)
    world.pass_time(1)
    if crashes:
        world.crash(world.schedulers[0])
    chaos.flush()
    world.report_in_time(pod, "success")
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 1


# ---------------------------------------------------------------------- a node that is cut off


def cut_off(chaos, *, dies=True):
    """Cut the first worker's node off, until Airflow does not hear of the worker; return the pod."""
    pod = chaos.pod_of(chaos.world.tis[0])
    chaos.world.cut_off(pod, dies=dies)
    chaos.flush()
    chaos.world.pass_time(HEARTBEAT_TIMEOUT)
    chaos.time_out_silent()
    chaos.flush()
    return pod


@pytest.mark.parametrize("dies", [True, False])
def test_a_node_is_cut_off(chaos, world, dies):
    pod = cut_off(chaos, dies=dies)
    chaos.wait_for_replacements()
    if not dies:
        assert not world.report(pod, "failed")
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


def test_the_replacement_waits_for_a_worker_on_a_node_that_is_cut_off(chaos, world):
    pod = cut_off(chaos, dies=False)
    for seconds in (5, 15):
        world.pass_time(seconds)
        chaos.flush()
    assert pod.exists
    assert runs_of_the_first(world) == 1
    succeeds_in_the_first_try(chaos)


def test_a_worker_on_a_node_that_is_cut_off_succeeds(chaos, world):
    pod = chaos.pod_of(world.tis[0])
    world.cut_off(pod, dies=False)
    chaos.flush()
    assert world.report(pod, "success")
    chaos.come_to_rest()


def test_a_heartbeat_times_out_before_a_lost_orphan_is_settled(chaos, world):
    lose(chaos, "removed")
    world.crash(world.schedulers[0])
    chaos.time_out_silent()
    succeeds_in_the_first_try(chaos)


def test_a_heartbeat_times_out_while_the_pods_of_orphans_cannot_be_listed(chaos, world):
    world.is_away = True
    world.crash(world.schedulers[0])
    lose(chaos)
    world.pass_time(HEARTBEAT_TIMEOUT)
    chaos.time_out_silent()
    succeeds_in_the_first_try(chaos)


def test_a_heartbeat_times_out_of_a_worker_whose_pod_has_gone_before_its_informer_saw_it(chaos, world):
    pod = chaos.pod_of(world.tis[0])
    world.crash(world.schedulers[0])
    heir = world.schedulers[0]
    heir.runtime.carry_out_all()
    world.turn(heir)
    world.take(pod, "removed", goes_on=False)
    heir.relist()
    chaos.time_out_silent()
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


def test_a_guess_is_made_while_another_scheduler_adopts(chaos, world):
    """Its transaction is committed after that, and the worker goes on."""
    first = world.schedulers[0]
    heir = world.pause(first)
    world.pass_time(40)
    with world.guessing(first):
        world.adopt_orphans(heir)
    world.resume(first)
    first.runtime.carry_out_all()
    world.turn(first)
    chaos.flush()
    world.check()
    assert [(ti.state, ti.hostname) for ti in world.tis] == [("running", pod.name) for pod in world.pods]
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 1


def test_a_scheduler_is_killed_between_a_report_and_its_commit(chaos, world):
    """The next one reports and calls back again."""
    world.kills_at_callback = True
    world.end_unreported(chaos.pod_of(world.tis[0]))
    for _ in range(5):
        chaos.flush()
        world.pass_time(5)
    assert [ti.state for ti in world.tis] == ["failed", "running"]
    assert [request.ti.map_index for request in world.called_back] == [0, 0]
    assert runs_of_the_first(world) == 1


@pytest.mark.parametrize("how", ["removed", "unknown"])
def test_a_heartbeat_times_out_of_a_worker_that_is_lost_in_an_outage(chaos, world, how):
    """Until the API server answers again, nobody can say what has become of it."""
    pod = chaos.pod_of(world.tis[0])
    world.begin_outage()
    world.take(pod, how, goes_on=False)
    for _ in range(2):
        world.pass_time(HEARTBEAT_TIMEOUT)
        chaos.flush()
        chaos.time_out_silent()
        chaos.flush()
    assert [ti.state for ti in world.tis] == ["running", "running"]
    world.end_outage()
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


# ---------------------------------------------------------------------- schedulers


def test_a_lost_worker_is_found_by_the_next_scheduler(chaos, world):
    world.take(chaos.pod_of(world.tis[0]), "removed", goes_on=False)
    world.crash(world.schedulers[0])
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


@pytest.mark.parametrize("error", [Killed(), Poison("relaunch")], ids=["killed", "exception"])
def test_a_relaunch_fails_after_the_commit(chaos, world, error):
    world.schedulers[0].fail_to_relaunch(error)
    lose(chaos)
    world.pass_time(5)
    chaos.flush()
    assert [ti.state for ti in world.tis] == ["queued", "running"]
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


def test_a_creation_is_carried_out_when_its_task_runs_again_in_another_scheduler(by_hand):
    """Its worker has a UUID by which Airflow knows the task no more: it cannot start."""
    chaos = by_hand(1, BUDGET)
    world = chaos.world
    chaos.launch_all()
    first = stand_still_while_another_launches(chaos)
    for pod in chaos.pods("Pending"):
        world.run(pod)
        world.report_start(pod)
    chaos.flush()
    lose(chaos)
    chaos.wait_for_replacements()
    replacement = chaos.pod_of(world.tis[0])
    world.resume(first)
    first.runtime.carry_out_all()
    assert replacement.is_alive
    chaos.flush()
    succeeds_in_the_first_try(chaos)


# ---------------------------------------------------------------------- people


@pytest.mark.parametrize("between", [True, False])
def test_a_task_is_cleared_when_its_worker_is_lost(chaos, world, between):
    lose(chaos)
    if between:
        world.pass_time(5)
        chaos.flush()
        assert world.tis[0].state == "queued"
    world.next_try(world.tis[0])
    chaos.flush()
    chaos.come_to_rest()
    assert [(ti.state, ti.try_number) for ti in world.tis] == [("success", 2), ("success", 1)]


@pytest.mark.parametrize("between", [True, False])
def test_a_task_is_marked_when_its_worker_is_lost(chaos, world, between):
    lose(chaos)
    if between:
        world.pass_time(5)
        chaos.flush()
    world.mark(world.tis[0], "failed")
    world.pass_time(20)
    chaos.flush()
    assert runs_of_the_first(world) == 1
    chaos.come_to_rest()
    assert [ti.state for ti in world.tis] == ["failed", "success"]


def test_a_worker_is_lost_whose_first_pod_could_not_be_adopted(by_hand):
    """Nobody knows of that pod, as it cannot be read. Its worker may not start the task any more."""
    chaos = by_hand(1, BUDGET)
    chaos.begin(starts=False)
    world = chaos.world
    world.poison(world.tis[0], "adoption.plan:task_key")
    world.crash(world.schedulers[0])
    world.pass_time(40)
    chaos.flush()
    world.revoke(world.tis[0])
    chaos.launch_all()
    unread, second = world.pods_of(world.life(world.tis[0]))
    world.run(second)
    world.report_start(second)
    chaos.flush()
    lose(chaos)
    assert unread.is_alive
    chaos.wait_for_replacements()
    assert (runs_of_the_first(world), unread.has_reported, unread.phase) == (2, True, "Failed")
    succeeds_in_the_first_try(chaos)
