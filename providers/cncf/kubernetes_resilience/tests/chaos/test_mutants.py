# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Each promise is broken on purpose, and the state machine has to notice: else its silence proves nothing."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test

from . import mutants
from . import test_execution_histories as execution_histories
from . import test_histories as histories
from . import test_late_creation_histories as late_creation_histories
from . import test_outage_histories as outage_histories
from . import test_standstill_histories as standstill_histories
from . import test_start_histories as start_histories
from .mutants import MUTANTS
from .poison import Poison

STEP = "failures.record:classify"
"""Of the executor's work, at which one of two task instances cannot be handled."""

STEPS = (50, 45, 40)
"""Of a history that is searched. Each number finds another one."""

SEARCH = settings(
    max_examples=300,
    # Also before a release: a mutant that is missed by chance says nothing of the change.
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.timeout(900)
def test_a_broken_promise_is_found(machine, monkeypatch, mutant):
    for steps in STEPS:
        found = InMemoryExampleDatabase()
        search = settings(SEARCH, database=found, stateful_step_count=steps)
        with monkeypatch.context() as patch:
            mutant(patch)
            with pytest.raises(AssertionError, match=f"^{MUTANTS[mutant]}:"):
                run_state_machine_as_test(machine(2), settings=search)
        assert found.data
        # The same history holds without the mutant, so it is the mutant that was found.
        with suppress(Unsatisfiable):  # without the mutant a step of it is impossible
            run_state_machine_as_test(machine(2), settings=settings(search, phases=[Phase.reuse]))
            return
    pytest.fail("no history that was found can be played without the mutant")


# What it takes to notice these comes together by chance once in hundreds of histories: by design, it does at
# once. Each of the histories passes as long as nothing is broken, which is a test of its own.
DIRECTED = {
    mutants.ignore_identity: partial(
        histories.test_the_end_of_a_pod_that_was_replaced_is_told_again, started=False
    ),
    mutants.take_a_label_for_ownership: partial(
        histories.test_an_adopter_is_killed_before_its_commit_and_a_third_scheduler_starts_at_once, relabels=2
    ),
    mutants.tidy_up_after_others: (
        histories.test_a_pod_ends_under_the_eyes_of_a_scheduler_that_does_not_have_its_task_instance
    ),
    mutants.let_go_of_what_is_relabelled: partial(
        histories.test_relabels_are_carried_out_after_another_scheduler_has_adopted, started=False
    ),
    mutants.settle_what_is_adopted: partial(
        histories.test_a_scheduler_adopts_what_it_had_before_it_was_paused, replacement_runs=False
    ),
    mutants.adopt_the_oldest: histories.test_replacements_are_adopted_beside_the_pods_of_a_silent_node,
    mutants.adopt_what_others_have: histories.test_another_scheduler_has_adopted_what_was_postponed,
    mutants.delete_what_others_have_launched: (
        histories.test_another_scheduler_has_launched_what_was_revoked_during_a_postponed_adoption
    ),
    mutants.reset_what_restarts: histories.test_what_was_cleared_while_it_ran_loses_its_scheduler,
    mutants.delete_what_has_started: partial(
        histories.test_a_pod_starts_between_the_decision_to_delete_it_and_its_deletion, reported=True
    ),
    mutants.fail_on_401_at_once: partial(
        histories.test_credentials_are_refused_for_a_while, outcome="unauthorized"
    ),
    mutants.let_tasks_get_stuck_in_queued: partial(
        histories.test_the_api_is_away_for_more_than_three_queued_timeouts, before="pods are killed"
    ),
    mutants.stop_the_turn: partial(
        histories.test_a_step_raises_an_exception_for_one_task_instance, step=STEP
    ),
    mutants.divide_no_batch: partial(
        histories.test_a_step_raises_an_exception_for_one_task_instance, step=STEP
    ),
    mutants.relaunch_own_exits: histories.test_a_worker_cannot_reach_airflow,
    mutants.take_the_phase_for_the_worker: partial(
        histories.test_a_worker_runs_beside_a_sidecar_that_never_starts, reports="after that"
    ),
    mutants.report_what_may_start: partial(
        histories.test_a_launch_is_given_up_for_good_while_no_deletion_is_accepted, starts=True
    ),
}


@pytest.mark.parametrize("mutant", DIRECTED, ids=lambda mutant: mutant.__name__)
def test_a_broken_promise_is_found_by_design(by_hand, monkeypatch, mutant):
    mutant(monkeypatch)
    chaos = by_hand(1)
    chaos.launch_all()
    with pytest.raises(AssertionError):
        DIRECTED[mutant](chaos=chaos, world=chaos.world)


# About schedulers that have stood still; these histories begin before anything is launched.
DIRECTED_STANDSTILLS = {
    mutants.trust_the_first_list: (
        partial(
            standstill_histories.test_another_has_adopted_what_was_listed_for_an_adoption_that_was_called_off,
            lists=1,
        ),
        "I1",
    ),
    mutants.delete_what_was_created_without_an_answer: (
        standstill_histories.test_another_has_adopted_what_was_taken_back_before_it_was_found,
        "I1",
    ),
    mutants.delete_what_has_started_of_old_calls: (
        partial(
            standstill_histories.test_its_own_creation_is_carried_out_as_it_has_its_task_instances_back,
            starts="before it is deleted",
        ),
        "I1",
    ),
    mutants.take_the_place_of_any_launch: (
        partial(
            late_creation_histories.test_a_pod_of_an_old_call_starts_beside_that_which_is_followed,
            runs="in theirs",
        ),
        "I2",
    ),
    mutants.delete_what_others_have_labelled: (
        standstill_histories.test_an_image_can_be_pulled_after_another_has_adopted_the_pod,
        "I1",
    ),
    mutants.go_on_with_what_was_overtaken: (
        standstill_histories.test_it_adopts_what_another_has_launched_while_its_own_creation_was_under_way,
        "I2",
    ),
}


@pytest.mark.parametrize("mutant", DIRECTED_STANDSTILLS, ids=lambda mutant: mutant.__name__)
def test_a_broken_promise_about_standstills_is_found_by_design(by_hand, monkeypatch, mutant):
    mutant(monkeypatch)
    find(by_hand(1), *DIRECTED_STANDSTILLS[mutant])


# About a registry that is away.
DIRECTED_OUTAGES = {
    mutants.charge_what_is_free: (
        partial(outage_histories.test_a_registry_is_away_for_several_probes, crashes=False),
        "I3",
    ),
    mutants.hold_for_ever: (outage_histories.test_a_registry_stays_away, "I5"),
    mutants.hold_what_is_cleared: (outage_histories.test_what_is_held_is_cleared, "I5"),
}


@pytest.mark.parametrize("mutant", DIRECTED_OUTAGES, ids=lambda mutant: mutant.__name__)
def test_a_broken_promise_about_outages_is_found_by_design(by_hand, monkeypatch, mutant):
    mutant(monkeypatch)
    chaos = by_hand(1, outages=True)
    chaos.begin_outage()
    find(chaos, *DIRECTED_OUTAGES[mutant])


# About running tasks: the history, and the promise that is broken in it.
DIRECTED_EXECUTIONS = {
    mutants.run_again_under_the_same_uuid: (
        partial(
            execution_histories.test_a_worker_goes_on_and_reports_when_it_was_lost,
            state="success",
            is_replaced=True,
        ),
        "I8",
    ),
    mutants.wait_for_no_report: (
        partial(execution_histories.test_a_report_is_under_way_when_the_pod_ends, crashes=False),
        "I8",
    ),
    mutants.count_losses_in_memory_only: (
        partial(execution_histories.test_a_worker_is_lost_once_more_than_the_budget_has, crashes=True),
        "I4",
    ),
    mutants.count_losses_of_one_uuid_only: (
        partial(execution_histories.test_a_worker_is_lost_once_more_than_the_budget_has, crashes=False),
        "I4",
    ),
    mutants.pass_heartbeat_timeouts_on: (
        partial(execution_histories.test_a_node_is_cut_off, dies=True),
        "I3",
    ),
    mutants.run_callbacks_at_once: (
        partial(execution_histories.test_a_node_is_cut_off, dies=True),
        "I3",
    ),
    mutants.put_away_what_others_have_adopted: (
        execution_histories.test_a_guess_is_made_while_another_scheduler_adopts,
        "I1",
    ),
    mutants.hold_callbacks_of_reports: (
        execution_histories.test_a_scheduler_is_killed_between_a_report_and_its_commit,
        "I9",
    ),
    mutants.reset_lost_orphans: (
        execution_histories.test_a_lost_worker_is_found_by_the_next_scheduler,
        "I3",
    ),
    mutants.forget_what_was_committed: (
        partial(execution_histories.test_a_relaunch_fails_after_the_commit, error=Poison("relaunch")),
        "I5",
    ),
    mutants.wait_for_nothing: (
        execution_histories.test_the_replacement_waits_for_a_worker_on_a_node_that_is_cut_off,
        "I2",
    ),
}


# About workers that start, in the same way.
DIRECTED_STARTS = {
    mutants.charge_nothing: (
        partial(
            start_histories.test_a_worker_cannot_reach_airflow_once_more_than_the_budget_has, crashes=False
        ),
        "I4",
    ),
    mutants.let_go_of_late_starts: (
        partial(
            start_histories.test_a_start_is_carried_out_when_its_worker_was_replaced,
            replacement="waits",
            crashes=False,
        ),
        "I3",
    ),
    mutants.blame_late_starts_on_the_task: (
        partial(
            start_histories.test_a_start_is_carried_out_when_its_worker_was_replaced,
            replacement="waits",
            crashes=True,
        ),
        "I3",
    ),
}


@pytest.mark.parametrize("mutant", DIRECTED_EXECUTIONS, ids=lambda mutant: mutant.__name__)
def test_a_broken_promise_about_running_tasks_is_found_by_design(by_hand, monkeypatch, mutant):
    mutant(monkeypatch)
    chaos = by_hand(1, execution_histories.BUDGET)
    chaos.begin(starts=True)
    find(chaos, *DIRECTED_EXECUTIONS[mutant])


@pytest.mark.parametrize("mutant", DIRECTED_STARTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_promise_about_starts_is_found_by_design(by_hand, monkeypatch, mutant):
    mutant(monkeypatch)
    chaos = by_hand(1, execution_histories.BUDGET)
    chaos.begin(starts=False)
    start_histories.run_all(chaos)
    find(chaos, *DIRECTED_STARTS[mutant])


def find(chaos, history, promise):
    """Play a history with a mutant, and have a promise found broken."""
    with pytest.raises(AssertionError, match=f"^{promise}:"):
        history(chaos=chaos, world=chaos.world)
