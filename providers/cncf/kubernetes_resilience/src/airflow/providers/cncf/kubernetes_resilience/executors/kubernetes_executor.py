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
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from queue import Empty, Queue, SimpleQueue
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import (
    KubernetesExecutor as UpstreamKubernetesExecutor,
)
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import (
    POD_EXECUTOR_DONE_KEY,
    KubernetesJob,
)
from airflow.providers.common.compat.sdk import Stats
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.adopter import Adopter
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.ownership import Ownership
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.patience import Patience
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.cancelled_launches import (
    CancelledLaunches,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.garbage_collection import OrphanCollector
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures.assessment import Verdict
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.expired_tokens import ExpiredTokens
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.failures.settlement import (
    Ended,
    Settled,
    Settlement,
)
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import (
    DatabaseAwayError,
    Isolation,
    count_unhandled,
    describe,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import SCHEDULER_LABEL
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, WaitingLaunch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.settings import read_settings
from airflow.providers.cncf.kubernetes_resilience.executors.task_logs import read_pod_logs
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.queued_timeout import QueuedTimeout
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import EXECUTOR_LABEL
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Message, PodObservation
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import (
    KubernetesRuntime,
    RuntimeSettings,
)
from airflow_resilience.decision import Action
from airflow_resilience.ledger import LedgerEntry

if TYPE_CHECKING:
    from airflow.cli.cli_config import GroupCommand
    from airflow.models.taskinstance import TaskInstance

STOP_TIMEOUT = 20.0
"""Seconds that a shutdown waits for requests that are under way."""

RECEIVE_BUDGET = 0.1
SETTLE_BUDGET = 0.2
"""Seconds that one turn of the scheduler's loop may spend on either; the rest waits for the next, since the
loop has other things to do as well."""

SETTLE_BATCH = 100
"""
Launches that are settled together, with one transaction. Those that are to be launched again are, before the
next are settled: the API server creates pods while this thread waits for the database.
"""


class KubernetesExecutor(UpstreamKubernetesExecutor):
    """
    Runs each task in a pod of its own, and heals launches that the infrastructure has failed.

    A pod that ends while its task instance is still ``queued`` ran none of the task's code. The executor
    launches another one, up to ``[kubernetes_executor] pod_launch_failure_retries`` times, without a
    retry of the task and without the scheduler noticing; each time is a row of the audit log.
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
        self._runtime: KubernetesRuntime | None = None
        self._turn_began = self._last_message = 0.0
        self._refused: dict[TaskInstanceKey, str] = {}

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """
        Start watching and launching.

        :raises AirflowConfigException: if a configured value cannot be used
        """
        settings = read_settings(self.conf)
        self._isolation = Isolation(self._clock)
        self._policies = RetryPolicies(settings, self._clock)
        self.log.info("Start Kubernetes executor (kubernetes_resilience)")
        self.scheduler_job_id = str(self.job_id)
        job_id = None if self.job_id is None else int(self.job_id)  # None: DAG.test
        self.task_queue = Queue()
        namespaces = self._namespaces()
        own_labels = {SCHEDULER_LABEL: self._own_label(), EXECUTOR_LABEL: self._executor_label()}
        self._runtime = KubernetesRuntime(
            RuntimeSettings(
                namespaces=namespaces,
                label_selector=(
                    f"{SCHEDULER_LABEL}={self._own_label()},{EXECUTOR_LABEL}={self._executor_label()},"
                    f"{POD_EXECUTOR_DONE_KEY}!=True"
                ),
                concurrency=settings.api_concurrency,
                delete_options=self.kube_config.delete_option_kwargs,
                request_timeout=self.kube_config.kube_client_request_args.get("_request_timeout"),
                inactivity_timeout=settings.watch_inactivity_timeout,
                team_name=self.team_name,
            ),
            self._inbox.put,
        )
        self._commands = PodCommands(self._runtime)
        self._deletion = PodDeletion(
            commands=self._commands,
            registry=self._registry,
            kube_config=self.kube_config,
            clock=self._clock,
        )
        factory = PodBuilder(
            self.kube_config, self.scheduler_job_id, self._executor_label(), self.jwt_generator
        )
        queued_timeout = conf.getfloat("scheduler", "task_queued_timeout")
        self._create_retries = CreateRetries(
            registry=self._registry,
            create=self._commands.create,
            fail=self.fail,
            drop=self._drop,
            give_up=self._give_up,
            isolation=self._isolation,
            ended=self._ended_without_pod,
            renew_token=factory.renew_token,
            token_validity=queued_timeout,
            job_id=job_id,
            retries=settings.publish_retries,
            clock=self._clock,
        )
        self._launch_queue = LaunchQueue(
            factory=factory,
            registry=self._registry,
            create_retries=self._create_retries,
            fail=self.fail,
            drop=self._drop,
            give_up=self._give_up,
            isolation=self._isolation,
            job_id=job_id,
            clock=self._clock,
        )
        self._queued_timeout = QueuedTimeout(
            queued_timeout,
            waiting=self._waiting_on_purpose,
            held=self._held_in_an_outage,
            is_away=self._is_away,
            isolation=self._isolation,
            job_id=job_id,
            clock=self._clock,
        )
        self._expired_tokens = ExpiredTokens(
            registry=self._registry,
            replace=self._replace,
            validity=queued_timeout,
            is_away=self._is_away,
            clock=self._clock,
        )
        self._settlement = Settlement(
            policies=lambda: self._policies.current,
            job_id=job_id,
            queued_again=lambda key: key in self.queued_tasks,
            has_expired=self._expired_tokens.has_expired,
            now=lambda: datetime.now(UTC),
        )
        self._adopter = Adopter(
            runtime=self._runtime,
            commands=self._commands,
            registry=self._registry,
            deletion=self._deletion,
            namespaces=namespaces,
            own_labels=own_labels,
            job_id=job_id,
            replaced=self._forget_past,
            patience=self._patience,
            held=self._follow,
            isolation=self._isolation,
            clock=self._clock,
        )
        self._cancelled = CancelledLaunches(
            registry=self._registry,
            deletion=self._deletion,
            release=self._release,
            relaunching=self._launch_queue.relaunching,
            call_off=self._call_off_relaunch,
            job_id=job_id,
            isolation=self._isolation,
            clock=self._clock,
        )
        self._orphans = OrphanCollector(
            runtime=self._runtime,
            commands=self._commands,
            deletion=self._deletion,
            namespaces=namespaces,
            own_label=self._own_label(),
            isolation=self._isolation,
            job_id=job_id,
            clock=self._clock,
        )
        self._ownership = Ownership(
            registry=self._registry,
            commands=self._commands,
            own_labels=own_labels,
            job_id=job_id,
            release=self._release,
            isolation=self._isolation,
        )
        self._event_filter = StaleEventFilter(
            registry=self._registry,
            commands=self._commands,
            deletion=self._deletion,
            own_label=self._own_label(),
            given_up_reasons=self.kube_config.worker_pod_pending_fatal_container_state_reasons,
            unschedulable_timeout=settings.unschedulable_timeout,
            expects=self._adopter.expects,
            doubt=self._ownership.doubt,
            not_created=self._create_retries.failed,
            take_back=self._take_back,
            clock=self._clock,
        )
        self._runtime.start()

    def end(self) -> None:
        """
        Stop, and finish the requests that are under way.

        What has arrived and was not handled yet is left to the next scheduler, which finds it in the
        cluster and in the database: nothing that is reported now would be read by anybody.
        """
        if self._runtime is None:
            return
        self.log.info("Shutting down Kubernetes executor")
        self._isolation.run("end", self._deletion.finish, self._turn_began)
        self._isolation.run("end", self._runtime.stop, STOP_TIMEOUT)
        self._runtime = None
        self.task_queue = None

    # ------------------------------------------------------------------ intake

    def execute_async(
        self, key: TaskInstanceKey, command: Any, queue: str | None = None, executor_config: Any = None
    ) -> None:
        """Accept a workload; its pod is created in the next :meth:`sync`."""
        try:
            super().execute_async(key=key, command=command, queue=queue, executor_config=executor_config)
        except Exception as error:  # noqa: BLE001 - logged below
            # A coordinator's template, say. It concerns this task alone; the scheduler hands over others. It
            # is reported in the next sync(): official providers before 10.24 give the task its slot after
            # this call, and the scheduler does not believe a report about a task that has one.
            self._refuse(key, error)
        # Upstream's record of attempts is not used; left there it would grow with every task.
        self.pod_launch_attempts.pop(key, None)

    def _take_jobs(self) -> None:
        for job in _drain(self.task_queue):
            try:
                self._take_job(job)
            except Exception as error:  # noqa: BLE001 - concerns this task alone, and is logged below
                self._refuse(job.key, error)
        while self._refused:
            self.fail(*self._refused.popitem())

    def _take_job(self, job: KubernetesJob) -> None:
        workload: Any = job.command[0]  # the type hint is of Airflow 2
        # A task instance that deferred or was rescheduled comes back under the same key. The pod of its
        # earlier phase has reported and ends by itself; it is not the current launch any more.
        self._adopter.forget(job.key)
        self._call_off_creation(job.key)
        self._launch_queue.add(WaitingLaunch(job=job, ti_id=str(workload.ti.id)))

    def _refuse(self, key: TaskInstanceKey, error: Exception) -> None:
        self._isolation.gave_up("intake", key, error)
        self._refused[key] = f"Workload could not be accepted: {describe(error)}"

    # ------------------------------------------------------------------ the loop

    def sync(self) -> None:
        """Handle what has arrived since the last time. Waits for the database, never for Kubernetes."""
        run = self._isolation.run
        run("policies", self._policies.tick)
        run("revive", self._commands.revive, self._registry, self._create_retries.ask)
        self._turn_began = self._clock()
        run("tidy", self._deletion.tick, self._last_message)
        run("intake", self._take_jobs)
        has_more = run("receive", self._receive, self._clock() + RECEIVE_BUDGET)
        run("track", self._event_filter.tick)
        try:
            run("own", self._settle_ownership)
            has_more |= run("settle", self._settle, self._clock() + SETTLE_BUDGET)
            run("adopt", self._adopter.continue_, self.running)
            run("hold-off", self._queued_timeout.tick)
            run("expire", self._expired_tokens.tick)
            run("create", self._create_retries.tick)
            has_more |= run("publish", self._launch_queue.publish_due)
            run("unwanted", self._cancelled.tick)
            run("sweep", self._orphans.tick)
        except DatabaseAwayError as error:
            # Nothing is lost: what could not be settled or published is still there for the next turn.
            self.log.warning("The metadata database did not answer; trying again in the next loop: %s", error)
        if has_more:
            self._stay_awake()

    def _settle_ownership(self) -> None:
        for launch, pod in self._ownership.settle():
            self._isolation.run("own", self._event_filter.labelled_again, launch, pod)

    def _stay_awake(self) -> None:
        """
        Have the scheduler turn to the executor again at once.

        It sleeps for ``[scheduler] scheduler_idle_sleep_time`` after a turn in which nothing was queued, and
        which has left no event over. One with a state that it does nothing about is left over. It must not be
        about a task instance that something is reported of, in this try or another: the scheduler goes by the
        last event of each.
        """
        reported = {key.primary for key in self.event_buffer if isinstance(key, TaskInstanceKey)}
        for key in self.running:
            if isinstance(key, TaskInstanceKey) and key.primary not in reported:
                self.event_buffer[key] = (TaskInstanceState.SCHEDULED, None)
                return

    # ------------------------------------------------------------------ what becomes of a launch

    def _receive(self, until: float) -> bool:
        """Take in what has arrived; return whether the time has run out."""
        for message in _drain(self._inbox):
            self._last_message = self._clock()
            try:
                self._event_filter.receive(message)
            except Exception:
                # What cannot be handled concerns one pod, not the scheduler.
                self.log.exception("Ignoring a message about a pod that could not be handled: %s", message)
                count_unhandled("receive")
                self._isolation.run("receive", self._event_filter.misread, message)
            if self._last_message > until:
                return True
        return False

    def _settle(self, until: float) -> bool:
        """Settle what has ended, and launch again what is to be; return whether the time has run out."""
        ended, has_more = self._event_filter.ended(), False
        for first in range(0, len(ended), SETTLE_BATCH):
            self._settle_batch(ended[first : first + SETTLE_BATCH])
            has_more = self._isolation.run("publish", self._launch_queue.publish_due)
            if self._clock() > until:
                return True
        return has_more

    def _settle_batch(self, ended: Sequence[Ended]) -> None:
        settled = self._isolation.batch(
            "settle", ended, self._settlement.settle, name=_key, give_up=self._cannot_settle
        )
        for item in settled:
            self._isolation.alone("act", item, self._act, name=_key, give_up=self._cannot_act)

    def _act(self, settled: Settled) -> None:
        """
        Turn a judgement into what is done about it. The one place where that happens.

        If it fails it is done again in a later turn, as a whole: the decision is in the ledger. Hence a
        launch is let go of last.
        """
        launch, judgement = settled.launch, settled.judgement
        if judgement.verdict is not Verdict.KEEP:
            self._deletion.supersede(launch, settled.failure)
        match judgement.verdict:
            case Verdict.RELEASE:
                self.log.info("Pod of %s has ended; %s", launch.key, judgement.why)
                self._release(launch)
            case Verdict.REPORT:
                self._report(settled, judgement.state)
            case Verdict.LAUNCH_FAILURE:
                self._act_on_launch_failure(settled)
        self._event_filter.settled(launch)

    def _act_on_launch_failure(self, settled: Settled) -> None:
        entry, launch = settled.entry, settled.launch
        if entry is None:
            raise AssertionError("a launch failure is always decided")
        if entry.decision.action is Action.RELAUNCH:
            self.log.warning(
                "Relaunching %s%s without touching its retries: its process never started; %s; %s",
                launch.key,
                f" in {entry.decision.delay:.0f} s" if entry.decision.delay else "",
                settled.failure,
                entry.decision.explanation,
            )
            self._launch_again(launch, entry)
        else:
            self._report(settled, "failed")
        Stats.incr("kubernetes_executor.pod_launch_failures", tags=_tags(entry))

    def _launch_again(self, launch: Launch, entry: LedgerEntry | None) -> None:
        if launch.workload is None:
            self._adopter.hand_back(launch)
        else:
            self._launch_queue.relaunch(launch, launch.workload.job(launch.key), entry)
        self._registry.release(launch.key)

    def _replace(self, launch: Launch) -> None:
        """Give a launch up that has not failed, unless it starts before."""
        if launch.facts is None:
            raise AssertionError("a launch is replaced for what is seen of its pod")
        self._deletion.give_up(launch.key, launch.facts, launch)
        self._launch_again(launch, None)

    def _report(self, settled: Settled, state: str | None) -> None:
        key, info = settled.launch.key, None
        if settled.failure:
            info = f"The task's {settled.failure}"
            if settled.entry:
                info += f"; {settled.entry.decision.explanation}"
            # A pod may fail when all is said and done: that of a task which was marked as a success, say.
            level = logging.WARNING if state == TaskInstanceState.FAILED else logging.INFO
            self.log.log(level, "%s ended as %s: %s", key, state, info)
        self._release_as(settled.launch, state, info)

    def _release_as(self, launch: Launch, state: str | None, info: str | None) -> None:
        if state:
            self.change_state(launch.key, TaskInstanceState(state), info, remove_running=False)
        self._release(launch)

    # ------------------------------------------------------------------ what cannot be handled

    def _cannot_act(self, settled: Settled, error: Exception) -> None:
        """Tell the scheduler what is known of a launch that nothing could be done about."""
        is_failure = settled.judgement.verdict is Verdict.LAUNCH_FAILURE
        state = TaskInstanceState.FAILED if is_failure else settled.judgement.state
        self._release_as(settled.launch, state, _unhandled(error))
        self._put_away(settled.launch, settled.failure)

    def _cannot_settle(self, ended: Ended, error: Exception) -> None:
        """End a launch that could not be judged, or about whose failure nothing could be decided."""
        self._give_up(ended.launch.key, ended.launch.ti_id, error)
        self._put_away(ended.launch, ended.failure)

    def _put_away(self, launch: Launch, failure: PodFailure | None) -> None:
        self._event_filter.settled(launch)
        self._isolation.run("retire", self._deletion.supersede, launch, failure)

    def _give_up(self, key: TaskInstanceKey, ti_id: str, error: Exception) -> None:
        """
        End a task instance that cannot be handled in Airflow's normal way.

        If it is known that no worker runs it, the scheduler is told so. If not even that is known nothing is
        reported, since no healthy task may fail: Airflow's own time limits end the task if it does not run.
        """
        if self._isolation.run("give-up", self._settlement.is_queued, key, ti_id):
            self._drop(key)
            self.fail(key, _unhandled(error))
        else:
            self._registry.release(key)
            self.running.discard(key)

    def _ended_without_pod(self, launch: Launch, failure: PodFailure) -> None:
        self._event_filter.end(launch, failure)

    def _follow(self, launch: Launch) -> None:
        """Take in a launch that was adopted; one that cannot be read does not keep the others waiting."""
        try:
            self._event_filter.follow(launch)
        except Exception as error:
            self._isolation.gave_up("adopt", launch.key, error)
            if launch.facts is None:
                raise
            self._isolation.run("adopt", self._event_filter.misread, PodObservation(launch.facts))

    # ------------------------------------------------------------------ small acts

    def _release(self, launch: Launch) -> None:
        self._registry.release(launch.key)
        self.running.discard(launch.key)

    def _take_back(self, launch: Launch) -> bool:
        """Make a launch that was given up on the current one again, if its replacement was not asked for."""
        if not (self._launch_queue.take_back(launch) or self._adopter.take_back(launch)):
            return False
        self.log.info("Pod %s of %s has started after all; it is not replaced", launch.ref, launch.key)
        launch.given_up, launch.has_survived = None, True
        self._registry.hold(launch)
        return True

    def _is_away(self) -> bool:
        return self._runtime is None or self._runtime.is_away

    def _waiting_on_purpose(self) -> set[str]:
        """Return the UUIDs of the queued task instances that wait because this executor wants them to."""
        return {
            *self._launch_queue.relaunching().values(),
            *self._create_retries.waiting(),
            *self._adopter.handing_back(),
            *self._adopter.postponed(),
        }

    def _held_in_an_outage(self) -> set[str]:
        """
        Return the UUIDs of all task instances that cannot start while the API server does not answer.

        Their launches are noted as held.
        """
        starting = self._registry.starting()
        for launch in starting:
            launch.was_held = True
        return self._launch_queue.waiting() | {launch.ti_id for launch in starting}

    def _drop(self, key: TaskInstanceKey) -> None:
        self._call_off_creation(key)
        self.running.discard(key)
        if self.event_buffer.get(key) == ("queued", self.scheduler_job_id):
            del self.event_buffer[key]

    def _call_off_relaunch(self, key: TaskInstanceKey) -> None:
        self._launch_queue.remove(key)
        self._deletion.revoke_given_up(key)
        self._drop(key)

    def _forget_past(self, key: TaskInstanceKey) -> None:
        """Forget what was to be done for a task instance before another scheduler had it."""
        self.queued_tasks.pop(key, None)
        self._launch_queue.remove(key)
        launch = self._registry.get(key)
        if launch and launch.ref is None:
            self._call_off_creation(key)

    def _call_off_creation(self, key: TaskInstanceKey) -> None:
        launch = self._registry.release(key)
        if launch and launch.ref is None:
            self._deletion.retire_unknown(launch)

    # ------------------------------------------------------------------ what the scheduler asks for

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Take a task instance out of the executor and delete its pod, without reporting anything."""
        key = ti.key
        self.queued_tasks.pop(key, None)
        self.running.discard(key)
        if self._runtime is None:
            return
        # Each by itself: the scheduler revokes others after this one.
        self._isolation.run("revoke", self._launch_queue.remove, key)
        self._isolation.run("revoke", self._adopter.forget, key)
        self._isolation.run("revoke", self._deletion.revoke_given_up, key)
        if launch := self._registry.release(key):
            self._isolation.run("revoke", self._deletion.revoke, launch)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """
        Take over the task instances of a dead scheduler; return those that have to be reset.

        Only a task that was running and has no pod any more is reset. One that is still queued goes on
        in the same try, with its pod or with a new one.
        """
        tags = {"team_name": self.team_name} if self.team_name else {}
        with Stats.timer("kubernetes_executor.adopt_task_instances.duration", tags=tags):
            try:
                return self._adopter.adopt(tis, self.running)
            except DatabaseAwayError as error:
                raise error.__cause__ or error from None  # Airflow repeats the offer
            except Exception as error:  # noqa: BLE001 - the scheduler would end, and so would the next; logged below
                self._isolation.gave_up("adopt", f"{len(tis)} task instances", error)
                # Those that have a slot were taken note of, and their pods are looked for again. The others
                # may run, so that none is reset: Airflow limits how long they may be silent, or queued.
                return []

    def get_streaming_task_log(self, ti: TaskInstance, try_number: int) -> Any:
        """Read the log of the current launch's pod, and of earlier ones that were kept after it."""
        return read_pod_logs(
            ti,
            try_number,
            namespace=self._get_pod_namespace(ti),
            lines=self.RUNNING_POD_LOG_LINES,
            client=upstream.make_client(self.team_name),
        )

    @staticmethod
    def get_cli_commands() -> list[GroupCommand]:
        """Return the official executor's commands and ours, for Airflow 3.1; later ones ask the providers."""
        return [*UpstreamKubernetesExecutor.get_cli_commands(), *get_cli_commands()]

    # ------------------------------------------------------------------ small things

    def _namespaces(self) -> tuple[str | None, ...]:
        if not self.kube_config.multi_namespace_mode:
            return (self.kube_config.kube_namespace,)
        return tuple(self.kube_config.multi_namespace_mode_namespace_list or [None])

    def _own_label(self) -> str:
        return self._make_safe_label_value(str(self.scheduler_job_id))

    def _executor_label(self) -> str:
        """Return what tells this executor from the others of its scheduler, also after a restart."""
        name = self.name.alias or self.name.module_path if self.name else type(self).__name__
        return self._make_safe_label_value(f"{self.team_name}.{name}" if self.team_name else name)


def _tags(entry: LedgerEntry) -> dict[str, str]:
    """Return what a failure is counted by; nothing that is different for each task."""
    return {
        "action": entry.decision.action,
        "category": entry.context.category,
        "reason": entry.context.reason,
        "cause": entry.context.metadata.get("cause", "unknown"),  # it may have been read back from the ledger
    }


def _key(item: Ended | Settled) -> TaskInstanceKey:
    return item.launch.key


def _unhandled(error: Exception) -> str:
    return f"The executor could not handle the launch: {describe(error)}"


def _drain(queue: Any) -> Iterator[Any]:
    """Take out of a queue, one by one, what is there now; what arrives meanwhile waits for the next turn."""
    for _ in range(queue.qsize()):
        try:
            yield queue.get_nowait()
        except Empty:
            return
