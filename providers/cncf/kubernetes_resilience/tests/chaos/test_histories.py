# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the machine finds by chance, here by design: short histories of the rarer kinds of event."""

from __future__ import annotations

import pytest

from .poison import STEPS
from .world import REQUEUES


def begin(by_hand):
    """Give the machine: two task instances whose pods are Pending."""
    chaos = by_hand(1)
    chaos.launch_all()
    return chaos


def start(chaos):
    """Have the workers of all pods report that they run."""
    for pod in chaos.pods("Pending"):
        chaos.world.run(pod)
        chaos.world.report_start(pod)
    chaos.flush()


def come_to_the_next_phase(chaos):
    """Have all tasks start and defer, and their triggers fire."""
    start(chaos)
    for ti in chaos.world.tis:
        chaos.world.report_end(ti, "deferred")
    chaos.flush()
    for ti in chaos.world.tis:
        chaos.world.fire_trigger(ti)


def kill_all(chaos):
    for pod in chaos.living():
        chaos.world.kill(pod, "drain")


def succeeds_in_the_first_try(chaos):
    chaos.come_to_rest()
    assert [(ti.state, ti.try_number) for ti in chaos.world.tis] == [("success", 1)] * 2


# ---------------------------------------------------------------------- events of the pod before


@pytest.mark.parametrize("started", [True, False])
def test_the_end_of_a_pod_that_was_replaced_is_told_again(chaos, world, started):
    kill_all(chaos)
    chaos.flush()
    if started:
        start(chaos)
    for scheduler, observation in chaos.past():
        scheduler.tell(observation)
    chaos.flush()
    succeeds_in_the_first_try(chaos)


def test_a_replacement_that_waits_to_be_created_is_not_taken_for_the_pod_before(chaos, world):
    chaos.world.kill(chaos.living()[0], "drain")
    chaos.flush(outcome="forbidden")
    chaos.flush()
    world.pass_time(70)
    succeeds_in_the_first_try(chaos)


# ---------------------------------------------------------------------- an adoption that is rolled back


@pytest.mark.parametrize("relabels", [0, 1, 2])
def test_an_adopter_is_killed_before_its_commit_and_a_third_scheduler_starts_at_once(chaos, world, relabels):
    start(chaos)
    heir = world.overtake(world.schedulers[0], commits=False, relabels=relabels)
    world.kill_scheduler(heir)
    world.adopt_orphans(world.add_scheduler())
    chaos.flush()
    assert [ti.state for ti in world.tis] == ["running", "running"]
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("heir_dies", [True, False])
def test_an_adoption_is_rolled_back_and_the_first_owner_comes_back(chaos, world, heir_dies):
    first = world.schedulers[0]
    heir = world.overtake(first, commits=False)
    if heir_dies:
        world.kill_scheduler(heir)
    world.resume(first)
    chaos.flush()
    kill_all(chaos)
    succeeds_in_the_first_try(chaos)


def test_the_first_owner_that_came_back_dies_while_the_adopter_lives(chaos, world):
    start(chaos)
    first = world.schedulers[0]
    world.overtake(first, commits=False)
    world.resume(first)
    chaos.flush()
    third = world.add_scheduler()
    world.kill_scheduler(first)
    world.pass_time(40)
    world.adopt_orphans(third)
    chaos.flush()
    assert [ti.state for ti in world.tis] == ["running", "running"]
    succeeds_in_the_first_try(chaos)


def test_an_adoption_is_rolled_back_and_offered_again(chaos, world):
    start(chaos)
    first = world.schedulers[0]
    heir = world.overtake(first, commits=False)
    world.adopt_orphans(heir)
    chaos.flush()
    assert [ti.queued_by_job_id for ti in world.tis] == [heir.job_id] * 2
    kill_all(chaos)
    chaos.flush()
    assert [ti.state for ti in world.tis] == ["failed", "failed"]


# ---------------------------------------------------------------------- a scheduler that stood still


@pytest.mark.parametrize("started", [True, False])
def test_relabels_are_carried_out_after_another_scheduler_has_adopted(chaos, world, started):
    if started:
        start(chaos)
    dead, paused = world.schedulers[0], world.add_scheduler()
    world.kill_scheduler(dead)
    world.pass_time(40)
    world.adopt_orphans(paused)
    world.turn(paused)  # its relabels lie there
    world.overtake(paused)
    chaos.flush()
    world.resume(paused)
    paused.runtime.carry_out_all()
    chaos.flush()
    chaos.flush()
    kill_all(chaos)
    chaos.flush()
    if started:
        assert [ti.state for ti in world.tis] == ["failed", "failed"], "I5: nobody has noticed"
    else:
        succeeds_in_the_first_try(chaos)


def test_pods_that_wait_are_left_to_the_scheduler_that_has_adopted_them(chaos, world):
    paused = world.schedulers[0]
    world.overtake(paused)
    chaos.flush()
    world.resume(paused)
    chaos.flush()
    assert all(pod.is_healthy for pod in chaos.pods("Pending"))
    succeeds_in_the_first_try(chaos)


def test_a_relabel_of_a_pod_that_leaves_does_not_pass_for_its_end(chaos, world):
    first, pod = world.schedulers[0], chaos.pods("Pending")[0]
    world.overtake(first, commits=False, relabels=0)
    world.resume(first)
    world.refuses_deletions = True
    world.stall(pod)
    for _ in range(4):  # it is given up by the first, and looked for again by the heir
        chaos.flush()
        world.pass_time(40)
    chaos.flush()
    assert pod.is_alive
    succeeds_in_the_first_try(chaos)


def test_a_deletion_is_carried_out_after_another_scheduler_has_adopted(chaos, world):
    paused, pod = world.schedulers[0], chaos.pods("Pending")[0]
    world.stall(pod)
    chaos.decide(paused)
    heir = world.pause(paused)
    world.run(pod)
    world.report_start(pod)
    world.pass_time(40)
    world.adopt_orphans(heir)
    chaos.flush()
    world.resume(paused)
    paused.runtime.carry_out_all()
    chaos.flush()
    succeeds_in_the_first_try(chaos)


def test_a_relaunch_waits_in_a_scheduler_that_is_paused_until_two_others_have_failed(chaos, world):
    first = world.schedulers[0]
    for pod in chaos.pods("Pending"):
        world.stall(pod)
    chaos.decide(first)  # both are given up; their replacements wait for their deletion
    heir = world.overtake(first)
    for _ in range(3):
        chaos.launch_all()
    assert all(pod.is_healthy for pod in chaos.pods("Pending"))
    world.resume(first)
    world.crash(heir)
    chaos.flush()
    for _ in range(4):
        world.pass_time(40)
        chaos.flush()
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("replacement_runs", [True, False])
def test_a_scheduler_adopts_what_it_had_before_it_was_paused(chaos, world, replacement_runs):
    paused = world.schedulers[0]
    heir = world.overtake(paused)
    chaos.flush()
    kill_all(chaos)
    chaos.flush()
    chaos.launch_all()
    if replacement_runs:
        start(chaos)
    world.kill_scheduler(heir)
    world.pass_time(40)
    world.is_away = True  # so the pods cannot tell it that those it knows were replaced
    world.resume(paused)
    world.adopt_orphans(paused)
    chaos.flush()
    assert len(world.pods) == 4
    assert all(pod.is_healthy for pod in world.pods[2:])
    world.is_away = False
    succeeds_in_the_first_try(chaos)


def postpone_adoption(chaos):
    """Have a second scheduler adopt while no pods can be listed, and then stand still; return it."""
    world = chaos.world
    world.is_away = True
    second = world.overtake(world.schedulers[0])
    world.is_away = False
    return second


def test_another_scheduler_has_adopted_what_was_postponed(chaos, world):
    first = world.schedulers[0]
    kill_all(chaos)
    chaos.decide(first)  # asks for the replacements, and stands still before they are created
    second = postpone_adoption(chaos)
    third = world.overtake(second)
    for _ in range(3):
        world.pass_time(10)
        chaos.launch_all()
    pods = chaos.pods("Pending")
    assert [pod.labels["airflow-worker"] for pod in pods] == [str(third.job_id)] * 2
    world.pass_time(10)  # what is created now is newer
    world.resume(first)
    first.runtime.carry_out_all()
    world.resume(second)
    chaos.flush()
    world.pass_time(10)
    chaos.flush()
    assert not any(pod.asked_at for pod in pods)
    succeeds_in_the_first_try(chaos)


def test_another_scheduler_has_launched_what_was_revoked_during_a_postponed_adoption(chaos, world):
    before = chaos.pods("Pending")
    second = postpone_adoption(chaos)
    for ti in world.tis:
        world.revoke(ti)
    world.pause(second)
    chaos.launch_all()
    pods = [pod for pod in chaos.pods("Pending") if pod not in before]
    assert len(pods) == 2
    world.resume(second)
    world.pass_time(10)
    chaos.flush()
    chaos.flush()
    assert not any(pod.asked_at for pod in pods)
    assert all(pod.asked_at for pod in before)
    succeeds_in_the_first_try(chaos)


def test_a_pod_ends_under_the_eyes_of_a_scheduler_that_does_not_have_its_task_instance(chaos, world):
    first = world.schedulers[0]
    second = world.overtake(first, commits=False, relabels=1)
    world.paused.remove(first)
    world.watchers.remove(first.notice)
    third = world.add_scheduler()
    world.adopt_orphans(third)
    world.kill_scheduler(third)  # before it has relabelled any
    (pod,) = (pod for pod in chaos.living() if pod.labels["airflow-worker"] == str(second.job_id))
    (ti,) = (ti for ti in world.tis if str(ti.id) == pod.ti_id)
    world.kill(pod, "drain")
    for _ in range(2):
        chaos.flush()
        world.pass_time(70)
    world.adopt_orphans(second)
    for _ in range(3):
        chaos.flush()
        world.pass_time(10)
        chaos.launch_all()
    # One relaunch is allowed. This is the second failure.
    (other,) = (item for item in chaos.living() if item.ti_id == pod.ti_id)
    world.kill(other, "drain")
    chaos.come_to_rest()
    assert {(item.id, item.state) for item in world.tis} == {
        (item.id, "failed" if item is ti else "success") for item in world.tis
    }


@pytest.mark.parametrize("started", [True, False])
def test_a_token_has_expired_in_an_outage_and_another_scheduler_has_adopted_the_pod(chaos, world, started):
    world.begin_outage()
    for _ in range(4):
        chaos.flush()
        world.pass_time(300)
    first = world.schedulers[0]
    world.end_outage()
    world.overtake(first)
    if started:
        for pod in chaos.pods("Pending"):
            world.run(pod)
            world.report_start(pod)
    world.resume(first)
    chaos.decide(first)
    assert not any(pod.asked_at for pod in world.pods)
    succeeds_in_the_first_try(chaos)


def stand_still_with_creations_under_way(chaos):
    """Have a scheduler stand still with two create calls under way, and another one adopt; return both."""
    first = chaos.world.schedulers[0]
    kill_all(chaos)
    chaos.decide(first)
    heir = chaos.world.overtake(first)
    return first, heir


def take_them_back(chaos, first, heir):
    """Have the scheduler die that works, and one that has stood still adopt its task instances."""
    chaos.world.kill_scheduler(heir)
    chaos.world.resume(first)
    chaos.world.pass_time(40)
    chaos.world.adopt_orphans(first)


def test_a_creation_that_was_under_way_is_called_off_by_its_own_scheduler(chaos, world):
    take_them_back(chaos, *stand_still_with_creations_under_way(chaos))
    chaos.flush()
    succeeds_in_the_first_try(chaos)


def stand_still_while_another_launches(chaos):
    """Have another scheduler also launch meanwhile; return the one that stands still."""
    first, _ = stand_still_with_creations_under_way(chaos)
    for _ in range(3):
        chaos.launch_all()
    return first


def have_it_back(chaos, first):
    """Have the only scheduler that works die, and all come that the one which takes over then asks for."""
    (heir,) = chaos.world.schedulers
    take_them_back(chaos, first, heir)
    chaos.flush()


def test_a_creation_is_carried_out_after_another_scheduler_has_adopted(chaos, world):
    first = stand_still_while_another_launches(chaos)
    world.resume(first)
    first.runtime.carry_out_all()
    chaos.flush()
    succeeds_in_the_first_try(chaos)


def test_a_creation_is_carried_out_after_another_scheduler_has_launched_the_next_phase(chaos, world):
    first = stand_still_while_another_launches(chaos)
    come_to_the_next_phase(chaos)
    chaos.launch_all()
    world.resume(first)
    first.runtime.carry_out_all()
    chaos.flush()
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("pods_are", ["waiting", "running"])
def test_a_creation_is_carried_out_when_its_own_scheduler_has_adopted_what_another_launched(
    chaos, world, pods_are
):
    first = stand_still_while_another_launches(chaos)
    theirs = chaos.living()
    if pods_are == "running":
        start(chaos)
    elif pods_are == "leaving":
        for pod in theirs:
            world.stall(pod)
        chaos.flush()
    have_it_back(chaos, first)
    ours = [pod for pod in chaos.living() if pod not in theirs]
    assert len(ours) == 2
    chaos.flush()
    assert all(pod.asked_at for pod in ours)
    assert all(bool(pod.asked_at) is (pods_are == "leaving") for pod in theirs)
    succeeds_in_the_first_try(chaos)


def test_replacements_are_adopted_beside_the_pods_of_a_silent_node(chaos, world):
    silent = chaos.pods("Pending")
    for pod in silent:
        world.run(pod)
        world.delete(pod)
    for _ in range(2):
        chaos.flush()
        world.pass_time(40)
    chaos.flush()
    world.crash(world.schedulers[0])
    chaos.flush()
    assert [pod.asked_at for pod in chaos.living() if pod not in silent] == [None, None]
    succeeds_in_the_first_try(chaos)


def test_a_creation_is_carried_out_beside_adopted_pods_that_are_being_deleted(by_hand):
    """Each of them takes a relaunch."""
    chaos = by_hand(2)
    chaos.launch_all()
    test_a_creation_is_carried_out_when_its_own_scheduler_has_adopted_what_another_launched(
        chaos, chaos.world, "leaving"
    )


def test_a_creation_is_carried_out_when_its_own_scheduler_has_its_task_again(chaos, world):
    first = stand_still_while_another_launches(chaos)
    theirs = chaos.living()
    for ti in world.tis:
        world.revoke(ti)
    world.resume(first)
    for ti in world.tis:
        world.enqueue(first, ti)
    chaos.flush()
    assert len([pod for pod in chaos.living() if pod not in theirs]) == 2
    succeeds_in_the_first_try(chaos)


# ---------------------------------------------------------------------- a deletion that comes late


@pytest.mark.parametrize("reported", [True, False])
def test_a_pod_starts_between_the_decision_to_delete_it_and_its_deletion(chaos, world, reported):
    pod = chaos.pods("Pending")[0]
    world.stall(pod)
    chaos.decide(world.schedulers[0])
    world.run(pod)
    if reported:
        world.report_start(pod)
    chaos.flush()
    if reported:
        assert pod.is_alive
    succeeds_in_the_first_try(chaos)


@pytest.mark.parametrize("starts", [True, False])
def test_a_launch_is_given_up_for_good_while_no_deletion_is_accepted(chaos, world, starts):
    """Its pod may start for as long."""
    kill_all(chaos)
    chaos.flush()
    world.refuses_deletions = True
    pod = chaos.pods("Pending")[0]
    world.stall(pod)
    chaos.flush()
    assert [ti.state for ti in world.tis] == ["queued", "queued"]
    if starts:
        world.recover(pod)
        world.run(pod)
        world.report_start(pod)
    world.refuses_deletions = False
    chaos.flush()
    if starts:
        succeeds_in_the_first_try(chaos)
    else:
        assert sorted(ti.state for ti in world.tis) == ["failed", "queued"]


@pytest.mark.parametrize("reports", ["before it is decided", "after that"])
def test_a_worker_runs_beside_a_sidecar_that_never_starts(chaos, world, reports):
    for pod in chaos.pods("Pending"):
        world.run(pod, sidecar_waits=True)
        if reports == "before it is decided":
            world.report_start(pod)
    chaos.decide(world.schedulers[0])
    for pod in chaos.starting():
        world.report_start(pod)
    chaos.flush()
    world.crash(world.schedulers[0])
    chaos.flush()
    assert [pod.name for pod in world.pods if pod.asked_at] == []
    succeeds_in_the_first_try(chaos)


def test_a_pod_starts_that_was_taken_back_while_its_adoption_was_under_way(chaos, world):
    world.crash(world.schedulers[0])
    for ti in chaos.tis("queued"):
        world.revoke(ti)
    world.refuses_deletions = True
    chaos.launch_all()
    for pod in chaos.pods("Pending"):
        world.run(pod)
    world.refuses_deletions = False
    chaos.flush()
    chaos.flush()
    assert len(chaos.leaving()) == 2
    for pod in chaos.leaving():
        world.finish_deletion(pod)
    chaos.flush()
    succeeds_in_the_first_try(chaos)


def test_a_pod_that_is_still_pending_is_deleted_though_it_has_changed(chaos, world):
    pod = chaos.pods("Pending")[0]
    world.stall(pod)
    chaos.decide(world.schedulers[0])
    world.stall(pod)
    chaos.flush()
    for leaving in chaos.leaving():
        world.finish_deletion(leaving)
    chaos.flush()
    assert not pod.exists
    succeeds_in_the_first_try(chaos)


# ---------------------------------------------------------------------- 401 and 403


@pytest.mark.parametrize("outcome", ["unauthorized", "forbidden"])
def test_credentials_are_refused_for_a_while(chaos, world, outcome):
    kill_all(chaos)
    for _ in range(2):
        chaos.flush(outcome=outcome)
        world.pass_time(60)
    assert [ti.state for ti in world.tis] == ["queued", "queued"]
    succeeds_in_the_first_try(chaos)


def test_credentials_are_refused_for_long(chaos, world):
    kill_all(chaos)
    for _ in range(20):
        chaos.flush(outcome="unauthorized")
        world.pass_time(60)
    chaos.flush()
    assert [ti.state for ti in world.tis] == ["failed", "failed"]


# ---------------------------------------------------------------------- an outage of more than three timeouts


@pytest.mark.parametrize("before", ["pods are killed", "tasks are queued", "the scheduler dies", "pods wait"])
def test_the_api_is_away_for_more_than_three_queued_timeouts(chaos, world, before):
    if before == "pods are killed":
        kill_all(chaos)
        chaos.decide(world.schedulers[0])
    elif before == "tasks are queued":
        come_to_the_next_phase(chaos)
        chaos.enqueue_all()
    world.begin_outage()
    if before == "the scheduler dies":
        world.crash(world.schedulers[0])
    for _ in range(12):
        chaos.enqueue_all()
        chaos.flush()
        world.pass_time(180)
        chaos.flush()
        world.handle_stuck_in_queued()
    world.end_outage()
    succeeds_in_the_first_try(chaos)


def test_an_adoption_that_is_called_off_is_postponed_for_long(chaos, world):
    """What was revoked meanwhile is not launched again before it is known what pods there are."""
    world.begin_outage()
    world.crash(world.schedulers[0])
    world.pass_time(300)
    chaos.flush()
    for ti in world.tis:
        world.revoke(ti)
    for _ in range(2):
        world.pass_time(300)
        chaos.flush()
    world.end_outage()
    chaos.launch_all()
    succeeds_in_the_first_try(chaos)


def test_what_had_ended_before_an_outage_is_learned_after_its_token_has_expired(by_hand):
    """The outage has not kept it from starting: it counts as what it is."""
    chaos = by_hand(0)
    chaos.launch_all()
    for pod in chaos.living():
        chaos.world.run(pod)
        chaos.world.exit_by_itself(pod)
    chaos.world.begin_outage()
    chaos.world.crash(chaos.world.schedulers[0])
    for _ in range(3):
        chaos.world.pass_time(300)
        chaos.flush()
    chaos.world.end_outage()
    chaos.world.pass_time(20)
    chaos.flush()
    chaos.flush()
    assert [ti.state for ti in chaos.world.tis] == ["failed", "failed"]


# ---------------------------------------------------------------------- an exception in any step


@pytest.mark.parametrize("step", [step for step, what in STEPS.items() if what != "left behind"])
def test_a_step_raises_an_exception_for_one_task_instance(chaos, world, step):
    world.poison(world.tis[0], step)
    provoke(chaos, STEPS[step])
    assert step in world.poison_taken
    chaos.come_to_rest()
    other = world.tis[1]
    assert (other.state, other.try_number) == ("success", 1)


def provoke(chaos, what):
    if what in ("killed", "not created"):
        kill_all(chaos)
    elif what == "orphaned":
        chaos.world.crash(chaos.world.schedulers[0])
    chaos.flush(outcome="lost" if what == "not created" else "ok")
    chaos.world.pass_time(20)
    chaos.flush()


def test_a_pod_that_was_left_behind_is_tidied_up_beside_one_that_cannot_be(chaos, world):
    world.poison(world.tis[0], "deletion.garbage_collection:try_of")
    for ti in world.tis:
        world.mark(ti, "success")
    world.crash(world.schedulers[0])
    left = chaos.pods("Pending")
    for _ in range(3):
        world.pass_time(400)
        chaos.flush()
    assert world.poison_taken
    assert [pod.exists for pod in left] == [True, False]


# ---------------------------------------------------------------------- cleared while it runs


def test_what_was_cleared_while_it_ran_loses_its_scheduler(chaos, world):
    start(chaos)
    world.clear_running(world.tis[0])
    world.crash(world.schedulers[0])
    for _ in range(2):
        chaos.launch_all()
    (pod,) = world.cleared_workers()
    world.notice_clearing(pod, succeeds=True)
    chaos.come_to_rest()
    assert [(ti.state, ti.try_number) for ti in world.tis] == [("success", 2), ("success", 1)]


@pytest.mark.parametrize("succeeds", [True, False])
def test_what_was_cleared_while_it_ran_runs_again_once_its_worker_has_ended(chaos, world, succeeds):
    start(chaos)
    world.clear_running(world.tis[0])
    chaos.flush()
    assert world.tis[0].state == "restarting"
    (pod,) = world.cleared_workers()
    world.notice_clearing(pod, succeeds=succeeds)
    chaos.flush()
    assert (world.tis[0].state, world.tis[0].try_number) == ("scheduled", 2)
    chaos.come_to_rest()


# ---------------------------------------------------------------------- workers that cannot reach Airflow


def test_a_worker_cannot_reach_airflow(chaos, world):
    """Without an infrastructure budget it has ended by itself, whatever it has said."""
    pod = chaos.pods("Pending")[0]
    world.run(pod)
    world.give_airflow_up(pod)
    chaos.come_to_rest()
    assert [(ti.state, ti.try_number) for ti in world.tis] == [("failed", 1), ("success", 1)]
    assert len(world.pods) == 2


def test_a_launch_cannot_be_settled_in_any_of_some_outages(chaos, world):
    """There are too few turns for it to be given up on: Airflow's own limits do that, not the outages."""
    ti = world.tis[0]
    world.poison(ti, "failures.record:ledger.record")
    kill_all(chaos)
    for _ in range(REQUEUES + 1):
        for pod in chaos.pods("Pending"):
            if pod.ti_id == str(ti.id):  # the other one may be launched again by then
                world.kill(pod, "drain")
        chaos.decide(world.schedulers[0])
        world.begin_outage()
        for _ in range(3):
            chaos.flush()
            world.pass_time(300)
            chaos.flush()
            world.handle_stuck_in_queued()
        world.end_outage()
        chaos.flush()
        chaos.launch_all()
        chaos.flush()
    world.cure()
    chaos.come_to_rest()
    assert world.tis[1].state == "success"
