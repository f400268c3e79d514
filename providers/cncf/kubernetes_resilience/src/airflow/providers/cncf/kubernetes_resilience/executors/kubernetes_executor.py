# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The KubernetesExecutor that relaunches pods which died before their task's process started.

It extends the official one: configuration, workload intake, pod construction, templates, overrides,
coordinators and the command line are inherited. Pods are watched and changed by one thread
(:mod:`..pods.thread.runtime`) in place of upstream's manager and watcher processes, and every event counts
only for the pod that is a task instance's current launch.

.. seealso:: https://airflow.apache.org/docs/apache-airflow-providers-cncf-kubernetes/stable/kubernetes_executor.html
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from queue import Empty, Queue, SimpleQueue
from typing import TYPE_CHECKING, Any, assert_never

from airflow.callbacks.callback_requests import TaskCallbackRequest
from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.patience import Patience
from airflow.providers.cncf.kubernetes_resilience.executors.assembly import Identity, assemble
from airflow.providers.cncf.kubernetes_resilience.executors.counters import LAUNCH_FAILURES, UNHANDLED_ERRORS
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import NotLaunched
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import not_built
from airflow.providers.cncf.kubernetes_resilience.executors.failures.assessment import Keep, Release, Report
from airflow.providers.cncf.kubernetes_resilience.executors.failures.fields import fields_of
from airflow.providers.cncf.kubernetes_resilience.executors.failures.outcome import (
    Compensated,
    Decided,
    Settled,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.traces import LaunchTraces
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import (
    DatabaseAwayError,
    Isolation,
    describe,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import ConfirmPod
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Launch,
    LaunchState,
    NextAttempt,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.settings import (
    UPSTREAM_SECTION,
    find_without_meaning,
    read_settings,
)
from airflow.providers.cncf.kubernetes_resilience.executors.task_logs import read_pod_logs
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.executors.unused_upstream import UnusedUpstream
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Message, PodObservation
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action
from airflow_resilience.ledger import LedgerEntry
from airflow_resilience.metrics import BUDGET_EXHAUSTED, count_infrastructure_retry, stats
from airflow_resilience.propagation import audit, listeners
from airflow_resilience.propagation.database import read_failure
from airflow_resilience.propagation.stored import XCOM_KEY
from airflow_resilience.retry_policy.evidence import Phase

if TYPE_CHECKING:
    from airflow.callbacks.callback_requests import CallbackRequest
    from airflow.cli.cli_config import GroupCommand
    from airflow.models.taskinstance import TaskInstance
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import (
        KubernetesExecutor as UpstreamKubernetesExecutor,
    )
else:
    UpstreamKubernetesExecutor = import_module(upstream.EXECUTOR_MODULE).KubernetesExecutor

STOP_TIMEOUT = 20.0
"""Seconds that a shutdown waits for requests that are under way."""

RECEIVE_BUDGET = 0.1
SETTLE_BUDGET = 0.2
"""Seconds that one turn of the scheduler's loop may spend on each. The rest waits for the next turn: the loop
has other work too."""

SETTLE_BATCH = 100
"""
Launches that are settled in one transaction. Their relaunches are asked for before the next batch is settled:
the API server creates pods while this thread waits for the database.
"""


class KubernetesExecutor(UnusedUpstream, UpstreamKubernetesExecutor):
    """
    Runs each task in a pod of its own, and launches it again if the infrastructure has failed it.

    A pod that ends while its task instance is still ``queued`` ran none of the task's code. The executor
    launches another one, up to ``[kubernetes_executor] pod_launch_failure_retries`` times. That consumes no
    retry of the task, and the scheduler does not notice. Each launch failure is a row of the audit log.
    """

    _patience = Patience()
    """One for all executors of this kind in a scheduler: they adopt one after another."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        except AirflowConfigException:
            # Upstream reads numbers without saying what is allowed; ours is the better message, if the
            # value is one of those that we check.
            read_settings(conf)
            raise
        self._clock = time.monotonic
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._registry = LaunchRegistry()
        self._slots = Slots(self)
        self._is_started = False
        self._turn_began = self._last_message = 0.0
        self._refused: dict[TaskInstanceKey, str] = {}
        self._held_callbacks: list[tuple[TaskInstanceKey, CallbackRequest]] = []
        """Those that Airflow may follow up with the guess that a worker is gone."""

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """
        Start watching and launching.

        :raises AirflowConfigException: if a configured value cannot be used
        """
        settings = read_settings(self.conf)
        self.log.info("Start Kubernetes executor (kubernetes_resilience)")
        if in_vain := find_without_meaning(self.conf):
            self.log.warning(
                "[%s] %s: of no effect in this executor, which creates pods concurrently by itself, with a"
                " client of its own",
                UPSTREAM_SECTION,
                ", ".join(in_vain),
            )
        self.scheduler_job_id = str(self.job_id)
        self.task_queue = Queue()
        self._isolation = Isolation(self._clock)
        self._traces = LaunchTraces()
        self._parts = assemble(
            Identity(
                job_id=None if self.job_id is None else int(self.job_id),
                scheduler_label=self._make_safe_label_value(self.scheduler_job_id),
                executor_label=self._executor_label(),
                team_name=self.team_name,
                namespaces=self.namespaces(),
            ),
            settings,
            self.kube_config,
            registry=self._registry,
            slots=self._slots,
            isolation=self._isolation,
            patience=self._patience,
            jwt_generator=self.jwt_generator,
            emit=self._inbox.put,
            clock=self._clock,
        )
        self._is_started = True  # also if the thread does not start: end() stops what there is of it
        self._parts.runtime.start()

    def end(self) -> None:
        """
        Stop, and finish the requests that are under way.

        Messages that were not handled are left to the next scheduler, which finds the pods and the rows.
        Nobody would read what is reported now.
        """
        if not self._is_started:
            return
        self.log.info("Shutting down Kubernetes executor")
        self._isolation.run("callbacks", self._send_held_callbacks)
        self._isolation.run("end", self._parts.deletion.finish, self._turn_began)
        self._isolation.run("end", self._parts.runtime.stop, STOP_TIMEOUT)
        self._is_started = False
        self.task_queue = None

    # ------------------------------------------------------------------ intake

    def execute_async(
        self, key: TaskInstanceKey, command: Any, queue: str | None = None, executor_config: Any = None
    ) -> None:
        """Accept a workload; its pod is created in the next :meth:`sync`."""
        try:
            super().execute_async(key=key, command=command, queue=queue, executor_config=executor_config)
        except Exception as error:  # noqa: BLE001 - logged below
            # A coordinator's template may be broken, for example. That concerns this task alone. It is
            # reported in the next sync(): official providers before 10.24 give the task its slot after this
            # call, and the scheduler ignores a report about a task that has a slot.
            self._refuse(key, error)
        # Upstream's count of attempts is not used, and would grow with every task.
        self.pod_launch_attempts.pop(key, None)

    def _take_jobs(self) -> None:
        for job in _drain(self.task_queue):
            try:
                self._take_job(job)
            except Exception as error:  # noqa: BLE001 - concerns this task alone, and is logged below
                self._refuse(job.key, error)

    def _take_job(self, job: KubernetesJob) -> None:
        # A task instance that deferred or was rescheduled comes back under the same key. The pod of its
        # earlier phase has reported and ends by itself; it is not the current launch any more.
        self._parts.adopter.forget(job.key)
        self._parts.deletion.call_off(job.key)
        self._parts.launch_queue.add(job)

    def _fail_refused(self) -> None:
        for key, why in list(self._refused.items()):
            self._store_why(key, not_built(why))
            del self._refused[key]
            self.fail(key, why)

    def _refuse(self, key: TaskInstanceKey, error: Exception) -> None:
        self._isolation.gave_up("intake", key, error)
        self._refused[key] = f"Workload could not be accepted: {describe(error)}"

    # ------------------------------------------------------------------ the loop

    def sync(self) -> None:
        """Handle what has arrived since the last time. Waits for the database, never for Kubernetes."""
        run, parts = self._isolation.run, self._parts
        run("callbacks", self._send_held_callbacks)
        run("policies", parts.policies.tick)
        run("revive", self._revive)
        self._turn_began = self._clock()
        run("tidy", parts.deletion.tick, self._last_message)
        run("intake", self._take_jobs)
        has_more = run("receive", self._receive, self._clock() + RECEIVE_BUDGET)
        run("track", parts.event_filter.tick)
        try:
            run("intake", self._fail_refused)
            run("own", self._settle_ownership)
            has_more |= run("settle", self._settle, self._clock() + SETTLE_BUDGET)
            run("adopt", self._continue_adoption)
            run("hold-off", parts.queued_timeout.tick)
            run("expire", self._replace_expired)
            run("create", self._repeat_creations)
            has_more |= run("launch", self._launch_due)
            run("cancel", self._cancel)
            run("collect", parts.garbage.tick)
            run("trace", self._traces.emit)
        except DatabaseAwayError as error:
            # Nothing is lost: what could not be settled or launched is still there for the next turn.
            self.log.warning("The metadata database did not answer; trying again in the next loop: %s", error)
        if has_more:
            self._stay_awake()

    def _revive(self) -> None:
        """Start the Kubernetes thread again if it has crashed, and ask again for what was lost with it."""
        if not self._parts.commands.revive():
            return
        self._parts.commands.send_again(self._registry.pending_deletions())
        for launch in self._registry:
            launch.calls = 0  # nobody will answer them
            if launch.ref:
                # The new informer does not know the pod, and would not notice that it is gone.
                self._parts.commands.send(ConfirmPod(launch.ref))
            elif launch.creation and launch.creation.next_attempt is None:
                launch.creation.next_attempt = NextAttempt(0.0)

    def _settle_ownership(self) -> None:
        for launch, pod in self._parts.ownership.settle():
            self._isolation.run("own", self._parts.event_filter.labelled_again, launch, pod)
        for pod in self._parts.ownership.settle_strays():
            self._parts.deletion.tidy(pod.ref, failed=True)

    def _continue_adoption(self) -> None:
        try:
            self._parts.adopter.continue_()
            self._parts.hand_back.tick()
        finally:
            self._follow_adopted()
            self._keep_lost()

    def _replace_expired(self) -> None:
        for launch in self._parts.expired_tokens.find():
            self.log.info("The token of pod %s for %s has expired in an outage", launch.ref, launch.key)
            self._replace(launch)

    def _repeat_creations(self) -> None:
        self._let_go_of(self._parts.create_retries.tick())

    def _launch_due(self) -> bool:
        not_launched, is_more = self._parts.launch_queue.create_due()
        self._let_go_of(not_launched)
        return is_more

    def _cancel(self) -> None:
        for launch in self._parts.cancelled.tick():
            self._traces.cancelled(launch)

    def _stay_awake(self) -> None:
        """
        Keep the scheduler from sleeping before its next turn.

        It sleeps for ``[scheduler] scheduler_idle_sleep_time`` after a turn that has queued nothing and has
        left no executor event over. An event with a state that it does not act on is left over. The event
        must not be about a task instance that something is reported of, in this try or another: the scheduler
        uses the last event of each.
        """
        reported = {key.primary for key in self.event_buffer if isinstance(key, TaskInstanceKey)}
        for key in self.running:
            if isinstance(key, TaskInstanceKey) and key.primary not in reported:
                self.event_buffer[key] = (TaskInstanceState.SCHEDULED, None)
                return

    # ------------------------------------------------------------------ what becomes of a launch

    def _receive(self, until: float) -> bool:
        """Handle the messages in the inbox; return whether the time has run out."""
        for message in _drain(self._inbox):
            self._last_message = self._clock()
            try:
                self._parts.event_filter.receive(message)
            except Exception:
                # What cannot be handled concerns one pod, not the scheduler.
                self.log.exception("Ignoring a message about a pod that could not be handled: %s", message)
                UNHANDLED_ERRORS.count(step="receive")
                self._isolation.run("receive", self._parts.event_filter.misread, message)
            if self._last_message > until:
                return True
        return False

    def _settle(self, until: float) -> bool:
        """Settle launches that have ended, and ask for relaunches; return whether something is left to do."""
        ended, has_more = self._parts.event_filter.ended(), False
        for first in range(0, len(ended), SETTLE_BATCH):
            self._settle_batch(ended[first : first + SETTLE_BATCH])
            has_more = self._isolation.run("launch", self._launch_due)
            if self._clock() > until:
                return True
        return has_more

    def _settle_batch(self, ended: Sequence[Launch]) -> None:
        settled = self._isolation.batch(
            "settle", ended, self._parts.settlement.settle, name=_key, give_up=self._cannot_settle
        )
        for item in settled:
            self._isolation.alone("act", item, self._act, name=_key_of_settled, give_up=self._cannot_act)

    def _act(self, settled: Settled) -> None:
        """
        Act on what was settled about a launch. This is the only place that does.

        If it fails, all of it is repeated in a later turn: the decision is in the ledger. So the launch is
        released last.
        """
        launch, outcome = settled.launch, settled.outcome
        if not settled.leaves_pod:
            self._parts.deletion.supersede(launch, settled.failure)
        match outcome:
            case Keep():
                pass
            case Release(why=why, leaves_pod=is_anothers, runs_elsewhere=runs_elsewhere):
                self.log.info("Pod of %s has ended; %s", launch.key, why)
                if is_anothers and launch.facts:
                    self._parts.ownership.doubt_stray(launch.facts)
                self._release(launch)
                if runs_elsewhere:
                    self._follow_running([launch.key])
            case Report(state):
                self._report(launch, state, settled)
            case Compensated(entry, failure):
                self._log_relaunch(launch, entry, failure)
                self._release(launch)
                _count(launch.key, entry)
                _tell_of_relaunch(launch.key, entry)
            case Decided(entry, failure) if entry.decision.action is Action.RELAUNCH:
                self._log_relaunch(launch, entry, failure)
                self._parts.launch_queue.relaunch(launch, entry)
                _count(launch.key, entry)
                _tell_of_relaunch(launch.key, entry)
            case Decided(entry):
                self._report(launch, TaskInstanceState.FAILED, settled, entry.decision.explanation)
                _count(launch.key, entry)
            case _:
                assert_never(outcome)
        self._parts.event_filter.settled(launch)
        self._traces.settled(settled)

    def _log_relaunch(self, launch: Launch, entry: LedgerEntry, failure: PodFailure) -> None:
        was_running = entry.phase is Phase.EXECUTION
        self.log.warning(
            "%s %s%s without touching its retries: %s; %s; %s",
            "Running again" if was_running else "Relaunching",
            launch.key,
            f" in {entry.decision.delay:.0f} s" if entry.decision.delay else "",
            "its worker was lost" if was_running else "its process never started",
            failure,
            entry.decision.explanation,
            **fields_of(launch, entry),
        )

    def _replace(self, launch: Launch) -> None:
        """Replace a launch that has not failed, unless it starts first."""
        if launch.facts is None:
            raise AssertionError("a launch is replaced for what is seen of its pod")
        self._parts.deletion.give_up(launch.key, launch.facts, launch)
        self._parts.launch_queue.relaunch(launch, None)
        self._traces.cancelled(launch)

    def _report(self, launch: Launch, state: str | None, settled: Settled, explanation: str = "") -> None:
        info = None
        if failure := settled.failure:
            info = f"The task's {failure}" + (f"; {explanation}" if explanation else "")
            # A pod may fail after its task has ended: that of a task which was marked as a success, for
            # example.
            level = logging.WARNING if state == TaskInstanceState.FAILED else logging.INFO
            fields = fields_of(launch, settled.entry)
            self.log.log(level, "%s ended as %s: %s", launch.key, state, info, **fields)
        self._release_as(launch, state, info)

    def _release_as(self, launch: Launch, state: str | None, info: str | None) -> None:
        if state:
            self.change_state(launch.key, TaskInstanceState(state), info, remove_running=False)
        self._release(launch)

    def _release(self, launch: Launch) -> None:
        if self._registry.is_current(launch):
            self._registry.release(launch.key)
            self._slots.free(launch.key)

    def _let_go_of(self, not_launched: Iterable[NotLaunched]) -> None:
        started = []
        for item in not_launched:
            launch = item.launch
            if not self._registry.is_current(launch):
                continue
            if item.error:
                self._give_up(launch, item.error)
                continue
            if item.context:
                self._store_why(launch.key, item.context)
            self._drop(launch.key)
            if item.why:
                self.fail(launch.key, item.why)
            elif item.runs:
                started.append(launch.key)
        self._follow_running(started)

    def _store_why(self, key: TaskInstanceKey, context: ExecutionContext) -> None:
        """
        Store why a task instance will be reported as failed that has no pod.

        :raises DatabaseAwayError: if the database does not answer
        """
        self._isolation.run("tell", audit.record_unlaunched, key, context)

    def _follow_running(self, keys: Iterable[TaskInstanceKey]) -> None:
        """
        Have the workers of task instances followed that superseded pods have started after all.

        Without an infrastructure budget they are left to Airflow, which notices if it does not hear of them.
        """
        unknown = [key for key in keys if not self._registry.adopting_of(key)]
        for orphan in self._isolation.batch("find", unknown, self._parts.executions.find_running):
            launch = self._registry.get(orphan.key)
            if launch and launch.ref and launch.runs(orphan.hostname):
                self._parts.event_filter.heard_nothing(launch)  # its kubelet does not even say that it starts
                continue
            self.log.info("%s has started in %s, which nobody follows", orphan.key, orphan.hostname)
            if launch:
                self._registry.release(orphan.key)
                self._parts.deletion.revoke(launch)  # its worker cannot start the task any more
            self._parts.adopter.follow(orphan)

    def _drop(self, key: TaskInstanceKey) -> None:
        self._parts.deletion.call_off(key)
        self._slots.withdraw(key)

    # ------------------------------------------------------------------ what cannot be handled

    def _cannot_act(self, settled: Settled, error: Exception) -> None:
        """Report what is known of a launch whose outcome could not be acted on."""
        match settled.outcome:
            case Decided():
                state: str | None = TaskInstanceState.FAILED
            case Report(state):
                pass
            case _:
                state = None
        self._release_as(settled.launch, state, _unhandled(error))
        self._put_away(settled.launch, settled.failure)

    def _cannot_settle(self, launch: Launch, error: Exception) -> None:
        """Give up a launch that could not be settled."""
        self._give_up(launch, error)
        self._put_away(launch, launch.failure)

    def _put_away(self, launch: Launch, failure: PodFailure | None) -> None:
        self._parts.event_filter.settled(launch)
        self._traces.cancelled(launch)
        self._isolation.run("retire", self._parts.deletion.supersede, launch, failure)

    def _give_up(self, launch: Launch, error: Exception) -> None:
        """
        Leave a task instance that cannot be handled to Airflow.

        It is reported as failed if it is known that no worker runs it. Otherwise nothing is reported, since
        no healthy task may fail: Airflow's own timeouts end the task if it does not run.
        """
        if self._isolation.run("give-up", self._parts.settlement.is_queued, launch.key, launch.ti_id):
            self._store_why(launch.key, _not_handled(error))
            self._drop(launch.key)
            self.fail(launch.key, _unhandled(error))
        else:
            self._release(launch)

    def _follow_adopted(self) -> None:
        """Follow the adopted launches. One that cannot be read does not stop the others."""
        for launch in self._parts.completion.take_adopted():
            if not self._registry.is_current(launch):
                continue
            try:
                self._parts.event_filter.follow(launch)
            except Exception as error:  # noqa: BLE001 - concerns this launch alone, and is logged below
                self._isolation.gave_up("adopt", launch.key, error)
                if launch.facts:
                    seen = PodObservation(launch.facts)
                    self._isolation.run("adopt", self._parts.event_filter.misread, seen)

    def _keep_lost(self) -> set[str]:
        """Hold what was adopted without a pod, if it has an infrastructure budget; return its UUIDs."""
        found = self._parts.completion.lost()
        lost = {orphan.ti_id: orphan for orphan in found if orphan.state == TaskInstanceState.RUNNING}
        kept: set[str] = set()
        for ti_id in self._isolation.batch("adopt", list(lost), self._parts.executions.with_budget):
            self._parts.event_filter.hold_lost(lost[ti_id])
            self._slots.occupied.add(lost[ti_id].key)
            kept.add(ti_id)
        self._parts.completion.forget_lost(found)
        return kept

    # ------------------------------------------------------------------ what the scheduler asks for

    def send_callback(self, request: CallbackRequest) -> None:
        """
        Have a callback run, unless it is about a failure that is not settled yet.

        Airflow sends the callback of a heartbeat timeout before it asks this executor to fail the task. If
        that is what becomes of it, Airflow sends another one with the report.
        """
        if isinstance(request, TaskCallbackRequest):
            ti = request.ti
            key = TaskInstanceKey(ti.dag_id, ti.task_id, ti.run_id, ti.try_number, ti.map_index)
            if self._settles(key):
                self._held_callbacks.append((key, request))
                return
            if self._is_started:
                try:
                    self._isolation.run("callbacks", _tell_why, request, key)
                except DatabaseAwayError:
                    self.log.warning("The callback of %s is not told why: no answer from the database", key)
        super().send_callback(request)

    def _send_held_callbacks(self) -> None:
        """Send the callbacks after which no guess has come: they were about something else."""
        while self._held_callbacks:
            _, request = self._held_callbacks.pop(0)
            super().send_callback(request)

    def change_state(self, key: Any, state: Any, info: Any = None, remove_running: bool = True) -> None:
        """
        Report a state, unless it is the scheduler's guess that a worker is gone which it has not heard of.

        That is evidence, and settled like the end of a pod.
        """
        is_guess = state == TaskInstanceState.FAILED and info is None and remove_running
        if not is_guess or not self._settles(key):
            super().change_state(key, state, info, remove_running)
            return
        self._held_callbacks = [item for item in self._held_callbacks if item[0] != key]
        launch = self._registry.get(key)
        if launch and _is_followed(launch):
            self._parts.event_filter.heard_nothing(launch)
            return
        # Airflow guesses again, and by then its pod, or its loss, may be known.
        with suppress(DatabaseAwayError):
            self._follow_running([key])

    def _settles(self, key: TaskInstanceKey) -> bool:
        """Whether the end of a task that runs is settled here: its pod is followed, looked for, or known."""
        if not self._is_started:
            return False
        launch = self._registry.get(key)
        if launch and _is_followed(launch):
            return True
        orphan = self._registry.adopting_of(key)
        if orphan and orphan.state != TaskInstanceState.RUNNING:
            return False
        try:
            if orphan is None:
                return bool(self._isolation.batch("find", [key], self._parts.executions.find_running))
            return bool(self._isolation.batch("adopt", [orphan.ti_id], self._parts.executions.with_budget))
        except DatabaseAwayError:
            return True

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Take a task instance out of the executor and delete its pod, without reporting anything."""
        key = ti.key
        self._slots.forget_queued(key)
        self._slots.free(key)
        if not self._is_started:
            return
        # Each by itself: the scheduler revokes others after this one.
        run, parts = self._isolation.run, self._parts
        run("revoke", parts.adopter.forget, key)
        run("revoke", parts.deletion.revoke_given_up, key)
        if launch := self._registry.release(key):
            run("revoke", parts.deletion.revoke, launch)
            self._traces.cancelled(launch)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """
        Take over the task instances of a dead scheduler; return those that have to be reset.

        Only a task that was running and has no pod any more is reset, unless it has an infrastructure budget:
        then its loss is settled like any other. One that is still queued goes on in the same try, with its
        pod or with a new one.
        """
        tags = {"team_name": self.team_name} if self.team_name else {}
        with stats().timer("kubernetes_executor.adopt_task_instances.duration", tags=tags):
            try:
                try:
                    reset = self._parts.adopter.adopt(tis)
                finally:
                    self._follow_adopted()
                    kept = self._keep_lost()
                return [ti for ti in reset if str(ti.id) not in kept]
            except DatabaseAwayError as error:
                raise error.__cause__ or error from None  # Airflow repeats the offer
            except Exception as error:  # noqa: BLE001 - the scheduler would end, and so would the next; logged below
                self._isolation.gave_up("adopt", f"{len(tis)} task instances", error)
                # Those that have a slot are noted, and their pods are looked for again. The others may run,
                # so none is reset: Airflow limits how long they may be silent or queued.
                return []

    def debug_dump(self) -> None:
        """Log where each task is that the executor holds, when the scheduler is sent SIGUSR2."""
        super().debug_dump()  # type: ignore[no-untyped-call]
        lines = [*self._registry.describe(self._clock())]
        self.log.info("Launches of the Kubernetes executor (%d)\n\t%s", len(lines), "\n\t".join(lines))

    def get_streaming_task_log(self, ti: TaskInstance, try_number: int) -> Any:
        """Read the log of the current launch's pod, and of earlier ones that were kept after it."""
        return read_pod_logs(
            ti,
            try_number,
            namespace=self._get_pod_namespace(ti),
            lines=self.RUNNING_POD_LOG_LINES,
            client=upstream.make_client(self.team_name),
        )

    def namespaces(self) -> tuple[str | None, ...]:
        """Return the namespaces of its pods; None is all namespaces."""
        if not self.kube_config.multi_namespace_mode:
            return (self.kube_config.kube_namespace,)
        return tuple(self.kube_config.multi_namespace_mode_namespace_list or [None])

    @staticmethod
    def get_cli_commands() -> list[GroupCommand]:
        """Return the official executor's commands and ours, for Airflow 3.1; later ones ask the providers."""
        return [*UpstreamKubernetesExecutor.get_cli_commands(), *get_cli_commands()]

    # ------------------------------------------------------------------ small things

    def _executor_label(self) -> str:
        """Return what tells this executor from the others of its scheduler, also after a restart."""
        name = self.name.alias or self.name.module_path if self.name else type(self).__name__
        return self._make_safe_label_value(f"{self.team_name}.{name}" if self.team_name else name)


def _is_followed(launch: Launch) -> bool:
    """Whether the end of a launch's worker is, or was, noticed here."""
    return launch.has_started or launch.state is LaunchState.ENDED


def _count(key: TaskInstanceKey, entry: LedgerEntry) -> None:
    """Count what was decided about a worker; nothing that is different for each task is a tag."""
    LAUNCH_FAILURES.count(
        action=entry.decision.action,
        category=entry.context.category,
        reason=entry.context.reason,
        cause=entry.context.metadata.get("cause", "unknown"),  # it may have been read back from the ledger
    )
    if not entry.counts_in(Phase.EXECUTION):
        return
    if entry.decision.action is Action.RELAUNCH:
        count_infrastructure_retry(entry.context, key.dag_id, _attempt(entry))
    elif entry.decision.ran_out:
        BUDGET_EXHAUSTED.count(reason=entry.context.reason, dag_id=key.dag_id)


def _attempt(entry: LedgerEntry) -> int:
    """Return which worker of its kind has failed in its try, from 1."""
    return int(entry.context.metadata.get(MetadataKey.INFRASTRUCTURE_ATTEMPT, entry.launch))


def _tell_of_relaunch(key: TaskInstanceKey, entry: LedgerEntry) -> None:
    listeners.call(
        "on_task_instance_relaunched",
        task_instance_key=key,
        execution_context=entry.context,
        decision=entry.decision,
        attempt=_attempt(entry),
    )


def _tell_why(request: TaskCallbackRequest, key: TaskInstanceKey) -> None:
    """Have a callback carry why the task has failed: the next try may begin before it is called."""
    with create_session(scoped=False) as session:
        stored = read_failure(key, session=session)
    if stored:
        request.ti.context_carrier = {**(request.ti.context_carrier or {}), XCOM_KEY: stored.to_dict()}


def _key(launch: Launch) -> TaskInstanceKey:
    return launch.key


def _key_of_settled(settled: Settled) -> TaskInstanceKey:
    return settled.launch.key


def _unhandled(error: Exception) -> str:
    return f"The executor could not handle the launch: {describe(error)}"


def _not_handled(error: Exception) -> ExecutionContext:
    return ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE,
        StateChangeReason.UNKNOWN,
        ContextSource.EXECUTOR,
        {MetadataKey.MESSAGE.value: _unhandled(error)},
    )


def _drain(queue: Any) -> Iterator[Any]:
    """Take out of a queue, one by one, what is there now; what arrives meanwhile waits for the next turn."""
    for _ in range(queue.qsize()):
        try:
            yield queue.get_nowait()
        except Empty:
            return
