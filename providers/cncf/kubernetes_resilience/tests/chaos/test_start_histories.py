# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Short histories of workers that cannot reach Airflow's API server, with an infrastructure budget of two."""

from __future__ import annotations

import pytest

from .test_execution_histories import BUDGET, lose, runs_of_the_first, succeeds_in_the_first_try


def begin(by_hand):
    """Give the machine: two task instances whose workers start."""
    chaos = by_hand(1, BUDGET)
    chaos.begin(starts=False)
    run_all(chaos)
    return chaos


def run_all(chaos):
    for pod in chaos.pods("Pending"):
        chaos.world.run(pod)
    chaos.flush()


def first_start(chaos):
    """Return the pod of the first task instance, whose worker starts."""
    return next(pod for pod in chaos.starting() if pod.ti_id == str(chaos.world.tis[0].id))


def give_airflow_up(chaos):
    """Have the first task instance's worker end, as it cannot reach Airflow; return its pod."""
    pod = first_start(chaos)
    chaos.world.give_airflow_up(pod)
    chaos.flush()
    return pod


def wait_for_the_next_start(chaos):
    for _ in range(3):
        chaos.world.pass_time(15)
        chaos.launch_all()
    run_all(chaos)


def pods_of_the_first(world):
    return [pod for pod in world.pods if world.attempt(pod) == (0, 1)]


@pytest.mark.parametrize("crashes", [True, False])
def test_a_worker_cannot_reach_airflow(chaos, world, crashes):
    give_airflow_up(chaos)
    if crashes:
        world.crash(world.schedulers[0])
    assert world.tis[0].state == "queued"
    succeeds_in_the_first_try(chaos)
    assert (len(pods_of_the_first(world)), runs_of_the_first(world)) == (2, 1)


@pytest.mark.parametrize("crashes", [True, False])
def test_a_worker_cannot_reach_airflow_once_more_than_the_budget_has(chaos, world, crashes):
    for _ in range(BUDGET + 1):
        assert world.tis[0].state == "queued"
        give_airflow_up(chaos)
        if crashes:
            world.crash(world.schedulers[0])
        wait_for_the_next_start(chaos)
    assert world.tis[0].state == "failed"
    assert len(pods_of_the_first(world)) == BUDGET + 1


def test_a_worker_that_cannot_reach_airflow_takes_no_relaunch(chaos, world):
    give_airflow_up(chaos)
    wait_for_the_next_start(chaos)
    world.kill(first_start(chaos), "drain")
    chaos.flush()
    succeeds_in_the_first_try(chaos)
    assert len(pods_of_the_first(world)) == 3


@pytest.mark.parametrize("crashes", [True, False])
@pytest.mark.parametrize("replacement", ["waits", "starts", "has ended"])
def test_a_start_is_carried_out_when_its_worker_was_replaced(chaos, world, replacement, crashes):
    pod = give_airflow_up(chaos)
    if replacement != "waits":
        wait_for_the_next_start(chaos)
    world.start_late(pod)
    if replacement == "has ended":
        for other in chaos.starting():
            world.report_start(other)
        chaos.flush()
    if crashes:
        world.crash(world.schedulers[0])
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


def test_a_late_start_takes_of_the_budget_once(chaos, world):
    world.start_late(give_airflow_up(chaos))
    chaos.wait_for_replacements()  # the loss is found when its replacement is due
    for _ in range(BUDGET):
        chaos.wait_for_replacements()
        assert world.tis[0].state == "running"
        lose(chaos)
    world.pass_time(5)
    chaos.flush()
    assert world.tis[0].state == "failed"
    assert runs_of_the_first(world) == BUDGET + 1


@pytest.mark.parametrize("crashes", [True, False])
def test_a_pod_is_lost_whose_start_is_carried_out_when_it_was_replaced(chaos, world, crashes):
    pod = first_start(chaos)
    world.kill(pod, "evicted")
    chaos.flush()
    world.start_late(pod)
    if crashes:
        world.crash(world.schedulers[0])
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


@pytest.mark.parametrize("crashes", [True, False])
def test_a_worker_starts_its_task_when_it_is_about_to_be_deleted(by_hand, crashes):
    """Airflow has taken the task back and queued it again: the worker finds it as it was the first time."""
    chaos = by_hand(1, BUDGET)
    chaos.begin(starts=False)
    world = chaos.world
    (pod,) = pods_of_the_first(world)
    world.revoke(world.tis[0])
    chaos.enqueue_all()
    world.run(pod)
    world.report_start(pod)
    chaos.flush()
    world.finish_deletion(pod)
    chaos.flush()
    if crashes:
        world.crash(world.schedulers[0])
    for _ in range(3):
        chaos.wait_for_replacements()
    assert [ti.state for ti in world.tis] == ["running", "running"]
    succeeds_in_the_first_try(chaos)
    assert runs_of_the_first(world) == 2


def test_a_start_is_carried_out_before_the_end_of_its_worker_is_known(chaos, world):
    """Nobody can tell any more whether its task had begun: that is a failure of its own."""
    pod = first_start(chaos)
    world.give_airflow_up(pod)
    world.start_late(pod)
    for _ in range(2):
        chaos.flush()
        world.pass_time(5)
    assert [ti.state for ti in world.tis] == ["failed", "queued"]
    assert len(pods_of_the_first(world)) == 1
