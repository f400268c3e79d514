# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Ways to break each promise on purpose. A mutant takes a ``MonkeyPatch`` and breaks the executor with it.

What it takes to notice some of them comes together by chance once in hundreds of histories: by design, it
does at once. Each of these histories passes as long as nothing is broken, which is a test of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

from airflow.executors.base_executor import BaseExecutor
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors import isolation, reconciler
from airflow.providers.cncf.kubernetes_resilience.executors.adoption import adopter, plan, pod_search
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.abandoned_pods import AbandonedPods
from airflow.providers.cncf.kubernetes_resilience.executors.creation import (
    create_retries,
    outages,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion import garbage_collection, pod_deletion
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures import judge, record
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import Report
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import (
    PodUpdate,
    SupersededPods,
)
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.launches import identity
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import task_key
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.running_workers import RunningWorkers
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import queued_timeout, task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskSnapshot
from airflow.providers.cncf.kubernetes_resilience.pods import facts
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    LAUNCH_ID_ANNOTATION,
    SCHEDULER_LABEL,
    PodFacts,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import ConfirmPod, DeletePod
from airflow_resilience import ledger
from airflow_resilience.ledger_entries import LaunchHistory
from airflow_resilience.retry_policy import built_in, engine
from airflow_resilience.retry_policy.evidence import Phase

from . import test_execution_histories as execution_histories
from . import test_histories as histories
from . import test_late_creation_histories as late_creation_histories
from . import test_outage_histories as outage_histories
from . import test_standstill_histories as standstill_histories
from . import test_start_histories as start_histories
from .poison import Poison
from .scheduler import Runtime
from .world import World

STEP = "failures.record:classify"
"""Of the executor's work, at which one of two task instances cannot be handled."""

SEARCHED = {}
"""Mutants that the machine finds, with the promise that it then finds broken, as a regular expression."""

DIRECTED = {}
"""Mutants that a history finds, with that history, and the promise if one is named."""


def found_by_search(promise):
    def note(mutant):
        SEARCHED[mutant] = promise
        return mutant

    return note


def found_by(history, promise=None, **options):
    def note(mutant):
        DIRECTED[mutant] = partial(history, **options), promise
        return mutant

    return note


# An event of the pod before takes a replacement that waits to be created for one that exists (I5),
# or one that may still run for one that has ended (I2).
@found_by_search("I[1235]")
@found_by(histories.test_the_end_of_a_pod_that_was_replaced_is_told_again, started=False)
def ignore_identity(patch):
    """Let an event count for whatever pod is the task instance's current one."""

    def by_task(self, pod):
        return self._registry.get(task_key(pod.annotations))

    patch.setattr(StaleEventFilter, "_recognise", by_task)


@found_by_search("I1")
def ignore_who_won_the_start(patch):
    """Let a pod's end count for a task that runs in another pod."""
    patch.setattr(Launch, "runs", lambda *args: True)


# A launch may be reported as failed though its pod, which nobody deletes, may start.
@found_by_search("I[12]")
def forget_to_delete(patch):
    patch.setattr(PodDeletion, "supersede", lambda *args, **options: None)


# What is looked for while it is not known whether it exists may be healthy.
@found_by_search("I[12]")
@found_by(execution_histories.test_the_replacement_waits_for_a_worker_on_a_node_that_is_cut_off, "I2")
def wait_for_nothing(patch):
    """Launch a replacement as soon as the deletion of the pod before it was asked for."""
    patch.setattr(LaunchRegistry, "is_clear", lambda *args: True)


# A launch may also be reported as failed though its pod may start.
@found_by_search("I[12]")
def count_the_wait_from_the_request(patch):
    """Let the time that a superseded pod is given begin before the API server has accepted its deletion."""
    patch.setattr(pod_deletion, "DELETION_TIMEOUT", 32.0)


@found_by_search("I3")
def count_twice(patch):
    decisions = LaunchHistory.decisions
    patch.setattr(LaunchHistory, "decisions", property(lambda self: 2 * decisions.fget(self)))


# The same, and what is reported was not settled: its pod may start.
@found_by_search("I[13]")
def report_undecided(patch):
    """Report a failed launch as a failed task, before the policy is asked."""
    assess = judge.assess

    def hasty(*args, **kwargs):
        assessment = assess(*args, **kwargs)
        return Report("failed") if assessment is Phase.LAUNCH else assessment

    patch.setattr(judge, "assess", hasty)


# Without its number the newest launch of a second is not known, and a healthy one is replaced.
@found_by_search("I[14]")
def write_no_ledger(patch):
    """Count nothing. Callbacks are told what the ledger says, which any failure would show first."""
    patch.setattr(World, "call_back", lambda *args: None)
    patch.setattr(ledger, "record", lambda *args, **kwargs: None)


@found_by_search("I[34]")
def count_in_memory_only(patch):
    """Forget, when a scheduler dies, what it has counted."""
    counted = WeakKeyDictionary()
    make = record.Recorder._make_entry

    def forgetful(self, item):
        own = counted.setdefault(self, set())
        item.history.entries = [entry for entry in item.history.entries if entry.worker_uid in own]
        own.add(item.launch.worker_uid)
        return make(self, item)

    patch.setattr(record.Recorder, "_make_entry", forgetful)


@found_by_search("I5")
def lose_refused_creations(patch):
    patch.setattr(StaleEventFilter, "_not_created", lambda *args: None)


# Nor is it noticed that another scheduler has adopted a launch.
@found_by_search("I[15]")
def lose_vanished_pods(patch):
    patch.setattr(StaleEventFilter, "_confirmed", lambda *args: None)


# Also beside one that cannot be handled.
@found_by_search("I(5|10)")
def drop_orphans_without_pods(patch):
    patch.setattr(task_instances, "reschedule", lambda *args, **kwargs: set())


@found_by_search("I[15]")
def adopt_nothing(patch):
    patch.setattr(adopter.Adopter, "adopt", lambda self, tis: list(tis))


@found_by(histories.test_replacements_are_adopted_beside_the_pods_of_a_silent_node)
def adopt_the_oldest(patch):
    newest_first = plan.newest_first
    patch.setattr(plan, "newest_first", lambda pods, host: newest_first(pods, host)[::-1])


# A launch that was replaced already is replaced once more, which no row of the ledger says.
@found_by_search("I5")
def fail_on_replays(patch):
    """Raise an error, as code does that does not expect an event to come twice."""
    gone = LaunchRegistry.gone

    def strict(self, *tokens):
        if not any(map(self.departing, tokens)):
            raise KeyError(tokens)
        gone(self, *tokens)

    patch.setattr(LaunchRegistry, "gone", strict)


@found_by_search("I7")
def wait_for_kubernetes(patch):
    """Ask the API server in the scheduler's thread, and wait for its answer."""
    send = PodCommands.send

    def wait(self, command):
        if isinstance(command, ConfirmPod):
            self._runtime.call(self._runtime.launcher.confirm(command.ref), 1.0)
        else:
            send(self, command)

    patch.setattr(PodCommands, "send", wait)


@found_by(histories.test_another_scheduler_has_adopted_what_was_postponed)
def adopt_what_others_have(patch):
    """Go on with an adoption that was postponed, though another scheduler has adopted meanwhile."""
    patch.setattr(adopter.Adopter, "_read_adopted", lambda self: dict.fromkeys(self._registry.adopting()))


@found_by(histories.test_another_scheduler_has_launched_what_was_revoked_during_a_postponed_adoption)
def delete_what_others_have_launched(patch):
    """Delete what was revoked during an adoption, though another scheduler has launched it meanwhile."""
    patch.setattr(AbandonedPods, "_is_used", lambda *args: False)


@found_by(
    standstill_histories.test_another_has_adopted_what_was_listed_for_an_adoption_that_was_called_off,
    "I1",
    lists=1,
)
def trust_the_first_list(patch):
    """Delete what was listed for an adoption that was cancelled, though another scheduler has it since."""
    patch.setattr(AbandonedPods, "_has_to_be_listed_again", lambda *args: False)


@found_by(
    standstill_histories.test_it_adopts_what_another_has_launched_while_its_own_creation_was_under_way, "I2"
)
def go_on_with_what_was_overtaken(patch):
    """Take a launch from before another scheduler had the task instance for the one that is to be adopted."""
    patch.setattr(
        adopter.Adopter, "_is_taken", lambda self, orphan: self._registry.get(orphan.key) is not None
    )


@found_by(standstill_histories.test_another_has_adopted_what_was_taken_back_before_it_was_found, "I1")
def delete_what_was_created_without_an_answer(patch):
    """Delete the pod of a creation whose launch was released, whoever has adopted it."""

    def delete(self, message):
        pod = message.facts or PodFacts(message.ref, {}, {LAUNCH_ID_ANNOTATION: message.launch_id})
        labels = {**pod.labels, SCHEDULER_LABEL: self._commands.own_label}
        self.note_update(PodUpdate.CREATED, replace(pod, labels=labels))

    patch.setattr(StaleEventFilter, "_created_in_vain", delete)


@found_by(
    standstill_histories.test_its_own_creation_is_carried_out_as_it_has_its_task_instances_back,
    "I1",
    starts="before it is deleted",
)
def delete_what_has_started_of_old_calls(patch):
    """Delete the pod of a create call that was cancelled in vain, though the task may run in it."""
    delete = PodDeletion._delete_if_created
    patch.setattr(
        PodDeletion,
        "_delete_if_created",
        lambda self, launch, **_: delete(self, launch, unless_started=False),
    )


@found_by(
    late_creation_histories.test_a_pod_of_an_old_call_starts_beside_that_which_is_followed,
    "I2",
    runs="in theirs",
)
def take_the_place_of_any_launch(patch):
    """Follow a pod of an old create call that has started, in place of one that is followed already."""

    patch.setattr(Launch, "gives_way_to", lambda self, launch: self.ti_id == launch.ti_id)


@found_by(standstill_histories.test_an_image_can_be_pulled_after_another_has_adopted_the_pod, "I1")
def delete_what_others_have_labelled(patch):
    """Delete a pod that was given up on, whatever label it has by then."""
    conditions = DeletePod.conditions.fget
    patch.setattr(DeletePod, "conditions", property(lambda command: conditions(command)[:1]))


@found_by(
    histories.test_an_adopter_is_killed_before_its_commit_and_a_third_scheduler_starts_at_once, relabels=2
)
def take_a_label_for_ownership(patch):
    """Leave pods out of adoption that carry the label of a scheduler which seems to be alive."""
    list_pods = pod_search.PodSearch._list

    async def by_label(self, orphans):
        own = int(self._commands.own_label)
        with create_session(scoped=False) as session:
            living = sorted(map(str, garbage_collection.read_living(but=own, session=session)))
        selector = f"{SCHEDULER_LABEL} notin ({','.join(living) or '0'}),{identity.NOT_DONE}"
        patch.setattr(pod_search, "NOT_DONE", selector)
        return await list_pods(self, orphans)

    patch.setattr(pod_search.PodSearch, "_list", by_label)


@found_by(execution_histories.test_a_guess_is_made_while_another_scheduler_adopts, "I1")
def clean_up_what_others_have_adopted(patch):
    """Delete the pod of a launch that counted as lost, though another scheduler has adopted it."""
    patch.setattr(judge.Settled, "leaves_pod", False)


@found_by(histories.test_a_worker_runs_beside_a_sidecar_that_never_starts, reports="after that")
def take_the_phase_for_the_worker(patch):
    """Take a pod for one that has not started for as long as it is Pending."""
    patch.setattr(facts, "_may_start", lambda phase, containers: phase in (None, "Pending"))


@found_by(histories.test_a_launch_is_given_up_for_good_while_no_deletion_is_accepted, starts=True)
def report_what_may_start(patch):
    """Report a launch that has failed for good while its pod may still start."""
    patch.setattr(LaunchRegistry, "is_stopped", lambda *args: True)


@found_by(histories.test_a_pod_ends_under_the_eyes_of_a_scheduler_that_does_not_have_its_task_instance)
def tidy_up_after_others(patch):
    """Clean every failed pod up that has this scheduler's label, whoever has its task instance."""
    patch.setattr(SupersededPods, "_is_elsewhere", lambda *args: False)


@found_by(histories.test_relabels_are_carried_out_after_another_scheduler_has_adopted, started=False)
def release_relabelled_launches(patch):
    """Forget a launch whose pod has got another scheduler's label, whoever has queued its task instance."""
    patch.setattr(TaskSnapshot, "owner", None)


@found_by(histories.test_a_scheduler_adopts_what_it_had_before_it_was_paused, replacement_runs=False)
def settle_what_is_adopted(patch):
    """Settle what another scheduler has had meanwhile before the pods were listed that may replace it."""
    patch.setattr(reconciler.Reconciler, "_is_adopted", lambda *args: False)


@found_by(histories.test_what_was_cleared_while_it_ran_loses_its_scheduler)
def reset_what_restarts(patch):
    """Hand back what was cleared while it ran, as if its worker were gone."""
    adopt = adopter.Adopter.adopt

    def hasty(self, tis, *args, **kwargs):
        restarting = [ti for ti in tis if ti.state == "restarting"]
        others = [ti for ti in tis if ti.state != "restarting"]
        return [*restarting, *adopt(self, others, *args, **kwargs)]

    patch.setattr(adopter.Adopter, "adopt", hasty)


@found_by(histories.test_a_pod_starts_between_the_decision_to_delete_it_and_its_deletion, reported=True)
def delete_what_has_started(patch):
    """Delete a pod that was given up on whatever it has become by then."""
    submit = Runtime.submit

    def unconditional(self, function, *args, **kwargs):
        if function == self.launcher.delete:
            args, kwargs = args[:1], {}
        submit(self, function, *args, **kwargs)

    patch.setattr(Runtime, "submit", unconditional)


@found_by(histories.test_credentials_are_refused_for_a_while, outcome="unauthorized")
def fail_on_401_at_once(patch):
    """Take an answer about our credentials for one about the task."""
    failed = create_retries.CreateRetries.failed

    def hasty(self, launch, error):
        if error.status in (401, 403):
            error = KubernetesApiError(error.message, status=422)
        failed(self, launch, error)

    patch.setattr(create_retries.CreateRetries, "failed", hasty)


@found_by(histories.test_the_api_is_away_for_more_than_three_queued_timeouts, before="pods are killed")
def let_tasks_get_stuck_in_queued(patch):
    """Let Airflow count the time of an outage against the tasks."""
    patch.setattr(queued_timeout.QueuedTimeout, "_begin_anew", lambda *args: None)


@found_by(histories.test_a_step_raises_an_exception_for_one_task_instance, step=STEP)
def stop_the_turn(patch):
    """Let an exception about one task instance out."""

    def batch(self, step, items, work, **options):
        return list(work(list(items)) or ())

    patch.setattr(isolation.Isolation, "run", lambda self, step, work, *args: bool(work(*args)))
    patch.setattr(isolation.Isolation, "batch", batch)


@found_by(histories.test_a_step_raises_an_exception_for_one_task_instance, step=STEP)
def divide_no_batch(patch):
    """Leave all out that are handled together with one that cannot be."""

    def batch(self, step, items, work, **options):
        try:
            return list(work(list(items)) or ())
        except Exception:  # noqa: BLE001 - that is what is wrong with it
            return []

    patch.setattr(isolation.Isolation, "batch", batch)


@found_by(
    execution_histories.test_a_worker_goes_on_and_reports_when_it_was_lost,
    "I8",
    state="success",
    is_replaced=True,
)
def run_again_under_the_same_uuid(patch):
    """Let the worker before report about the next run."""
    make = record.Recorder._make_entry

    def with_the_id_of_before(self, item):
        entry = make(self, item)
        return replace(entry, next_ti_id=entry.next_ti_id and entry.ti_id)

    patch.setattr(record.Recorder, "_make_entry", with_the_id_of_before)


@found_by(execution_histories.test_a_report_is_under_way_when_the_pod_ends, "I8", crashes=False)
def wait_for_no_report(patch):
    """Replace a worker whose report is under way."""
    patch.setattr(record, "REPORT_GRACE", 0.0)


@found_by(execution_histories.test_a_worker_is_lost_once_more_than_the_budget_has, "I4", crashes=True)
def count_losses_in_memory_only(patch):
    """Forget, when a scheduler dies, what it has counted."""
    counted = WeakKeyDictionary()
    make = record.Recorder._make_entry

    def forgetful(self, item):
        own = counted.setdefault(self, set())
        losses = [entry for entry in item.history.entries if entry.phase is Phase.EXECUTION]
        for entry in losses:
            if entry.next_ti_id not in own:
                item.history.forget(entry)
        entry = make(self, item)
        own.add(entry.next_ti_id)
        return entry

    patch.setattr(record.Recorder, "_make_entry", forgetful)


@found_by(execution_histories.test_a_worker_is_lost_once_more_than_the_budget_has, "I4", crashes=False)
def count_losses_of_one_uuid_only(patch):
    """Do not follow the UUIDs that a try has had."""
    whole_try = ledger._whole_try

    def of_one_uuid(ti_id, rows):
        return whole_try(ti_id, [row for row in rows if row.entry and row.entry.ti_id == ti_id])

    patch.setattr(ledger, "_whole_try", of_one_uuid)


@found_by(execution_histories.test_a_node_is_cut_off, "I3", dies=True)
def pass_heartbeat_timeouts_on(patch):
    """Let Airflow fail what it does not hear of, whatever has become of the pod."""
    patch.setattr(RunningWorkers, "settles", lambda *args: False)


@found_by(execution_histories.test_a_node_is_cut_off, "I3", dies=True)
def run_callbacks_at_once(patch):
    """Run the callbacks of a failure that is not settled yet."""
    patch.setattr(KubernetesExecutor, "send_callback", BaseExecutor.send_callback)


@found_by(execution_histories.test_a_scheduler_is_killed_between_a_report_and_its_commit, "I9")
def hold_callbacks_of_reports(patch):
    """Hold back the callbacks of failures that Airflow has taken from this executor."""
    patch.setattr(KubernetesExecutor, "get_event_buffer", BaseExecutor.get_event_buffer)


@found_by(execution_histories.test_a_lost_worker_is_found_by_the_next_scheduler, "I3")
def reset_lost_orphans(patch):
    """Have Airflow reset, as it always did, what ran in a pod that is gone when it is adopted."""
    init = adopter.Adopter.__init__

    def without_budget(self, **parts):
        init(self, **(parts | {"with_budget": lambda ti_ids: set()}))

    patch.setattr(adopter.Adopter, "__init__", without_budget)


@found_by(execution_histories.test_a_relaunch_fails_after_the_commit, "I5", error=Poison("relaunch"))
def forget_what_was_committed(patch):
    """Take a task instance that was given another UUID for one that was cleared."""
    patch.setattr(record.Recorder, "read_decided", lambda *args: [])


@found_by(histories.test_a_worker_cannot_reach_airflow)
def relaunch_own_exits(patch):
    """Have ``Error`` excluded from nothing."""
    patch.setattr(built_in, "_exclusions", lambda reasons: iter(()))


@found_by(
    start_histories.test_a_worker_cannot_reach_airflow_once_more_than_the_budget_has, "I4", crashes=False
)
def charge_nothing(patch):
    """Let no relaunch take of the infrastructure budget."""
    budget = engine._budget
    patch.setattr(engine, "_budget", lambda selection, policies, used: budget(selection, policies, 0))


@found_by(
    start_histories.test_a_start_is_carried_out_when_its_worker_was_replaced,
    "I3",
    replacement="waits",
    crashes=False,
)
def release_late_starts(patch):
    """Release a task if a worker that has ended has its start carried out late."""
    patch.setattr(RunningWorkers, "_find_running", lambda *args: None)


@found_by(
    start_histories.test_a_start_is_carried_out_when_its_worker_was_replaced,
    "I3",
    replacement="waits",
    crashes=True,
)
def blame_late_starts_on_the_task(patch):
    """Take the end of a worker whose start is carried out late for that of a worker that had begun."""
    patch.setattr(record, "_had_ended_before_its_start", lambda *args: False)


@found_by(outage_histories.test_a_registry_is_away_for_several_probes, "I3", crashes=False)
def charge_what_is_free(patch):
    """Let a launch that has failed for an outage count against the limit of relaunches."""
    patch.setattr(record, "_AWAY", replace(record._AWAY, policy=built_in.BUILT_IN))


@found_by(outage_histories.test_a_registry_stays_away, "I5")
def hold_for_ever(patch):
    patch.setattr(outages.Outages, "_resume_held", lambda *args: None)


@found_by(outage_histories.test_what_is_held_is_cleared, "I5")
def hold_what_is_cleared(patch):
    """Let nobody look whether Airflow still waits for what is held."""
    is_unstarted = reconciler._is_unstarted

    def overlook(launch):
        return is_unstarted(launch) and launch.state is not LaunchState.HELD

    patch.setattr(reconciler, "_is_unstarted", overlook)
