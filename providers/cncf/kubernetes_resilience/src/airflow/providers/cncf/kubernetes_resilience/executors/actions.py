# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Acts on decisions about launches: frees slots, reports, relaunches, and has pods deleted or kept.

Airflow gets reports of certain facts only.
"""

from __future__ import annotations

import logging
from typing import assert_never

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.log.logging_mixin import LoggingMixin
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from attrs import define

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import (
    LaunchQueue,
    not_built,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    UNKNOWN_VERSION,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures import notifications
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Asked,
    Build,
    Decided,
    Fail,
    Keep,
    Release,
    Report,
    Settled,
    Situation,
    Step,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import SupersededPods
from airflow.providers.cncf.kubernetes_resilience.executors.failures.traces import LaunchTraces
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.masking import describe
from airflow.providers.cncf.kubernetes_resilience.executors.running_workers import RunningWorkers
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import awaits_launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import HEARTBEAT_TIMEOUT, PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.propagation import audit
from airflow_resilience.retry_policy.evidence import Phase


@define(kw_only=True, eq=False, repr=False, slots=False)
class Actions(LoggingMixin):
    """Acts on launches, by what was judged and committed."""

    _registry: LaunchRegistry
    _slots: Slots
    """Those of the launches are freed."""
    _deletion: PodDeletion
    _event_filter: StaleEventFilter
    _create_retries: CreateRetries
    _launch_queue: LaunchQueue
    """Builds pods, takes relaunches, and holds back the report of a failure while a pod may start."""
    _superseded_pods: SupersededPods
    """Take pods whose failure another scheduler may count."""
    _running_workers: RunningWorkers
    """Follow workers that run in other pods."""
    _traces: LaunchTraces
    _isolation: Isolation
    _job_id: int | None

    def act(self, settled: Settled) -> None:
        """
        Act on what was settled about a launch.

        A failed act is repeated in a later turn: the ledger has the decision, and the launch is asked about
        again. So a launch is released last.
        """
        launch, outcome = settled.launch, settled.outcome
        match outcome:
            case Step():
                self._go_on(launch, outcome, settled.situation)
            case Build(earlier):
                if why := self._launch_queue.build(launch, earlier):
                    self._fail(launch, why, not_built(why))
            case Fail(why, context):
                if launch.waiting and not launch.waiting.fails:
                    self.log.warning("The last launch of %s has failed; none follows: %s", launch.key, why)
                self._fail(launch, why, context)
            case _:
                self._end(settled, outcome)

    def _end(self, settled: Settled, outcome: Decided | Report | Release | Keep) -> None:
        launch = settled.launch
        if not settled.leaves_pod:
            self._deletion.supersede(launch, settled.failure)
        match outcome:
            case Keep():
                pass
            case Release():
                self._stop_following(launch, outcome, settled.situation)
            case Report(state):
                self._report(launch, state, settled)
            case Decided(entry, failure) if entry.decision.action is Action.RELAUNCH:
                self._relaunch(launch, entry, failure)
            case Decided(entry, by_rule=True):
                self._report(launch, TaskInstanceState.FAILED, settled, entry.decision.explanation)
                notifications.count(launch.key, entry)
            case Decided():
                self._report(launch, TaskInstanceState.FAILED, settled)
            case _:
                assert_never(outcome)
        self._registry.settled(launch)
        self._traces.settled(settled)

    def _relaunch(self, launch: Launch, entry: LedgerEntry, failure: PodFailure) -> None:
        was_running = entry.phase is Phase.EXECUTION
        self.log.warning(
            "The %s of %s %s; %s; %s%s without touching its retries; %s",
            "worker" if was_running else "process",
            launch.key,
            "was lost" if was_running else "never started",
            failure,
            "running again" if was_running else "relaunching",
            f" in {entry.decision.delay:.0f} s" if entry.decision.delay else "",
            entry.decision.explanation,
            **notifications.fields_of(launch, entry),
        )
        self._slots.occupied.add(launch.key)  # which Airflow's guess has freed, if it was passed on
        self._slots.follow_new_id(launch.key, entry.ti_id, entry.next_ti_id)
        self._launch_queue.relaunch(launch, entry)
        notifications.count(launch.key, entry)
        notifications.notify_of_relaunch(launch.key, entry)

    def _report(self, launch: Launch, state: str | None, settled: Settled, explanation: str = "") -> None:
        info, entry = None, settled.entry
        if failure := settled.failure:
            info = f"The task's {failure}" + (f"; {explanation}" if explanation else "")
            # A pod may fail after its task has ended: that of a task which was marked as a success, for
            # example.
            level = logging.WARNING if state == TaskInstanceState.FAILED else logging.INFO
            fields = notifications.fields_of(launch, entry)
            self.log.log(level, "%s ended as %s: %s", launch.key, state, info, **fields)
        if info and entry and entry.phase is Phase.LAUNCH:
            self._launch_queue.fail(launch, info)  # its pod may start while it is deleted
        else:
            self._report_end(launch, state, info)

    def _report_end(self, launch: Launch, state: str | None, info: str | None) -> None:
        """
        Report how the task instance of a launch has ended, and free its slot.

        :param state: None to report nothing
        """
        if state:
            self._slots.report(launch.key, state, info)
        self._release(launch)

    def _release(self, launch: Launch) -> None:
        """Free the slot of a launch, if it is still the current one. Nothing is reported."""
        if self._registry.is_current(launch):
            self._registry.release(launch.key)
            self._slots.retract(launch.key)

    def _stop_following(self, launch: Launch, outcome: Release, situation: Situation) -> None:
        self.log.info("%s: %s; its launch is released", launch.key, outcome.why)
        # The scheduler that has the task instance may know nothing of a pod which it has not labelled.
        is_unknown = outcome.leaves_pod and situation is not Situation.RELABELLED
        if is_unknown and launch.facts and not launch.is_gone:
            self._superseded_pods.note_unfollowed(launch.facts)
        self._release_settled(launch)
        if outcome.runs_elsewhere:
            self._running_workers.follow([launch.key])

    def _release_settled(self, launch: Launch) -> None:
        self._release(launch)
        self._registry.settled(launch)

    # ------------------------------------------------------------------ launches that have not

    def _go_on(self, launch: Launch, step: Step, situation: Situation) -> None:
        match step:
            case Step.HAND_BACK:
                self.log.info("%s is handed back to the scheduler, to be queued in the same try", launch.key)
                self._retract(launch.key)
            case Step.CANCEL:
                if launch.waiting and situation is Situation.UNCHECKED:
                    self._deletion.revoke_given_up(launch.key)
                self._cancel(launch)
            case Step.FOLLOW:
                self._follow(launch)
            case Step.REPLACE:
                self._replace(launch)
            case Step.RELABEL:
                self._event_filter.label_again(launch)
            case Step.CREATE:
                self._create_retries.ask(launch)
            case Step.CREATE_LATER:
                self._create_retries.repeat_later(launch)
            case Step.WAIT:
                raise AssertionError("nothing is left to do about what waits")
            case _:
                assert_never(step)

    def _follow(self, launch: Launch) -> None:
        """Follow the worker that runs the task of a launch, and free the slot if that has no budget."""
        self._running_workers.follow([launch.key])
        if self._registry.is_current(launch):
            self._cancel(launch)

    def _cancel(self, launch: Launch) -> None:
        """Free the slot of an unwanted launch, and delete its pod unless the pod has started."""
        if launch.ref is None:
            self.log.info("%s was cleared, marked or deleted, or goes on; it is not launched", launch.key)
            self._retract(launch.key)
        else:
            self.log.info("%s was cleared, marked or deleted; its unstarted pod is deleted", launch.key)
            # The worker may have started, and ended its try, without a message to this scheduler.
            unseen = PodFacts(launch.ref, {}, {}, resource_version=UNKNOWN_VERSION)
            self._deletion.give_up(launch, launch.facts or unseen)
            self._release(launch)
        self._traces.cancelled(launch)

    def _replace(self, launch: Launch) -> None:
        """Replace a launch whose worker's token has expired, unless it starts first."""
        if launch.facts is None:
            raise AssertionError("a launch is replaced for what is seen of its pod")
        self.log.info("The token of pod %s for %s has expired before it started", launch.ref, launch.key)
        self._deletion.give_up(launch, launch.facts, unless_adopted=True)
        self._launch_queue.relaunch(launch, None)
        self._traces.cancelled(launch)

    # ------------------------------------------------------------------ what cannot be handled

    def cannot_act(self, settled: Settled, error: Exception) -> None:
        """Report what is known of a launch whose outcome could not be acted on."""
        launch, outcome = settled.launch, settled.outcome
        match outcome:
            case Step.CANCEL | Step.FOLLOW | Keep() | Release(leaves_pod=True):
                # A pod that never starts, or is not cleaned up, stays until this scheduler ends.
                self._release_settled(launch)
                return
            case Fail(why, context):
                self._isolation.run("give-up", self._fail, launch, why, context)
                self._release_settled(launch)
                return
            case Step() | Build():
                self.cannot_settle(Asked(launch, settled.situation), error)
                return
            case Decided(entry) if entry.phase is Phase.LAUNCH:
                self._launch_queue.fail(launch, _unhandled(error))
            case Decided():
                self._report_end(launch, TaskInstanceState.FAILED, _unhandled(error))
            case Report(state):
                self._report_end(launch, state, _unhandled(error))
            case _:
                self._release(launch)
        self._supersede(launch, settled.failure)

    def cannot_settle(self, asked: Asked, error: Exception) -> None:
        """Give up a launch that could not be settled. The pod of an unstarted one is looked at again."""
        launch = asked.launch
        match asked.situation:
            case Situation.ENDED:
                self._give_up(launch, error)
                self._supersede(launch, launch.failure)
            case Situation.CREATION_DUE | Situation.LAUNCH_DUE:
                self._give_up(launch, error)
            case Situation.RELABELLED:
                self._release_settled(launch)
            case Situation.UNCHECKED | Situation.TOKEN_EXPIRED:
                pass

    def _give_up(self, launch: Launch, error: Exception) -> None:
        """
        Leave a task instance that cannot be handled to Airflow.

        The task is reported as failed if no worker runs it. Otherwise nothing is reported, since no healthy
        task may fail: Airflow's own timeouts end the task if it does not run.
        """
        if self._isolation.run("give-up", self._is_queued, launch):
            self._isolation.run("give-up", self._fail, launch, _unhandled(error), _not_handled(error))
        self._release(launch)

    def _is_queued(self, launch: Launch) -> bool:
        """Return whether a task instance still waits for its launch: no worker runs it."""
        with create_session(scoped=False) as session:
            row = task_instances.read_rows({launch.ti_id}, session=session).get(launch.ti_id)
        is_queued = awaits_launch(row, launch.key, job_id=self._job_id)
        return is_queued and not self._slots.is_queued_again(launch.key)

    def _supersede(self, launch: Launch, failure: PodFailure | None) -> None:
        self._registry.settled(launch)
        self._traces.cancelled(launch)
        # Nobody but Airflow says that a silent worker has ended, and its task may run on.
        if failure is None or failure.reason != HEARTBEAT_TIMEOUT:
            self._isolation.run("retire", self._deletion.supersede, launch, failure)

    def _fail(self, launch: Launch, why: str, context: ExecutionContext | None) -> None:
        """Report that a task instance has failed, once no pod of its launch can start any more."""
        if launch.may_run:
            self._deletion.cancel(launch.key)
            self._launch_queue.fail(launch, why, context)
            return
        if context:
            self._isolation.run("record", audit.record_unlaunched, launch.key, context)
        self._retract(launch.key)
        self._slots.fail(launch.key, why)

    def _retract(self, key: TaskInstanceKey) -> None:
        self._slots.retract(key)
        self._deletion.cancel(key)


def _unhandled(error: Exception) -> str:
    return f"The executor could not handle the launch: {describe(error)}"


def _not_handled(error: Exception) -> ExecutionContext:
    return ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE,
        StateChangeReason.UNKNOWN,
        ContextSource.EXECUTOR,
        {MetadataKey.MESSAGE.value: _unhandled(error)},
    )
