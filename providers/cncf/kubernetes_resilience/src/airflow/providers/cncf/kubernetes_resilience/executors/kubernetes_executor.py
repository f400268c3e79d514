# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The KubernetesExecutor that launches a task again in the same try if the infrastructure has failed its pod.

The executor extends the official one: configuration, workload intake, pod construction, templates, overrides,
coordinators and the command line are inherited. Pods are watched and changed by one thread
(:mod:`..pods.thread.runtime`) in place of upstream's manager and watcher processes, and every event counts
only for the pod that is a task instance's current launch.

.. seealso:: https://airflow.apache.org/docs/apache-airflow-providers-cncf-kubernetes/stable/kubernetes_executor.html
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from queue import Empty, Queue, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.callbacks.callback_requests import TaskCallbackRequest
from airflow.exceptions import AirflowConfigException
from airflow.executors.executor_loader import ExecutorLoader
from airflow.executors.workloads import ExecuteTask
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import WaitBudget
from airflow.providers.cncf.kubernetes_resilience.executors.assembly import Parts
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import not_built
from airflow.providers.cncf.kubernetes_resilience.executors.failures import notifications
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import PodUpdate
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import DatabaseAwayError
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.masking import describe
from airflow.providers.cncf.kubernetes_resilience.executors.policy_settings import UPSTREAM_SECTION
from airflow.providers.cncf.kubernetes_resilience.executors.settings import (
    find_without_meaning,
    naming_the_team,
    read_settings,
)
from airflow.providers.cncf.kubernetes_resilience.executors.task_logs import read_pod_logs
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.facts import EXECUTOR_LABEL, SCHEDULER_LABEL, shared
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Message
from airflow_resilience.airflow_version import refuse_unsupported
from airflow_resilience.metrics import stats

if TYPE_CHECKING:
    from airflow.callbacks.callback_requests import CallbackRequest
    from airflow.cli.cli_config import GroupCommand
    from airflow.models.taskinstance import TaskInstance
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import (
        KubernetesExecutor as UpstreamKubernetesExecutor,
    )
else:
    UpstreamKubernetesExecutor = import_module(upstream.EXECUTOR_MODULE).KubernetesExecutor

_HeldCallback: TypeAlias = tuple[TaskInstanceKey, TaskCallbackRequest]

_OFFICIAL = f"{upstream.EXECUTOR_MODULE}.KubernetesExecutor"

STOP_TIMEOUT = 20.0
"""Seconds that a shutdown waits for requests that are under way."""

RECEIVE_BUDGET = 0.1
SETTLE_BUDGET = 0.2
"""Seconds that one turn of the scheduler's loop may spend on each. The rest waits for the next turn: the loop
has other work too."""


class KubernetesExecutor(UpstreamKubernetesExecutor):
    """
    Runs each task in a pod of its own, and launches it again if the infrastructure has failed it.

    A pod that ends while its task instance is still ``queued`` ran none of the task's code. The executor
    launches another one, up to ``[kubernetes_executor] pod_launch_failure_retries`` times. A relaunch uses no
    retry of the task, and the scheduler does not notice. Each launch failure is a row of the audit log.
    """

    supports_task_instance_uuid = False
    """Task instances are known by their keys, also with Airflow 3.4: one that runs again in the same try has
    another UUID. Pods name the UUID besides."""

    # Further abilities of a later official executor are not inherited.
    if upstream.TASKS_ALONE:
        supported_workload_types = upstream.TASKS_ALONE
    else:
        supports_callbacks = False
        supports_connection_test = False

    _wait_budget = WaitBudget()
    """Shared by all executors of this kind in a scheduler, which adopt one after another."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        except AirflowConfigException:
            with naming_the_team(getattr(self, "team_name", None)):
                # Upstream reads numbers without saying what is allowed; ours is the better message, if the
                # value is one of those that we check.
                if hasattr(self, "conf"):  # else it is something that Airflow reads before
                    read_settings(self.conf)
                raise
        self._clock = time.monotonic
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._registry = LaunchRegistry()
        self._slots = Slots(self)
        self._is_started = False
        self._turn_began = self._last_message = 0.0
        self._held_callbacks: list[_HeldCallback] = []
        """Those that Airflow may follow up with the guess that a worker is gone."""
        self._reported: set[object] = set()
        """Failed task instances in the reports that the scheduler has taken last. It acts on them now."""

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """
        Start watching and launching.

        :raises AirflowConfigException: if a configured value cannot be used
        :raises RuntimeError: if this version of Airflow is not supported
        """
        with naming_the_team(self.team_name):
            self._start()

    def _start(self) -> None:
        refuse_unsupported()
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
        generator = self.jwt_generator
        self._parts = Parts(
            settings=settings,
            kube_config=self.kube_config,
            job_id=None if self.job_id is None else int(self.job_id),
            labels={
                SCHEDULER_LABEL: self._make_safe_label_value(self.scheduler_job_id),
                EXECUTOR_LABEL: self.label,
            },
            team_name=self.team_name,
            namespaces=self.namespaces(),
            registry=self._registry,
            slots=self._slots,
            wait_budget=self._wait_budget,
            make_token=lambda ti_id: upstream.make_token(ti_id, generator),
            emit=self._inbox.put,
            clock=self._clock,
        )
        self._isolation = self._parts.isolation
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
        with suppress(DatabaseAwayError):
            for item in list(self._held_callbacks):  # also what would be tried again later
                self._isolation.run("callback", self._send_held_callback, item)
        if lost := [key for key, _ in self._held_callbacks]:
            self.log.warning("The callbacks of %s could not be sent", lost)
        self._isolation.run("end", self._parts.deletion.finish, self._turn_began)
        self._isolation.run("end", self._parts.runtime.stop, STOP_TIMEOUT)
        self._is_started = False
        self.task_queue = None

    @property
    def slots_occupied(self) -> int:
        """Return how many of the configured slots are taken: a held launch does not take its own."""
        return int(super().slots_occupied) - self._slots.lent

    # ------------------------------------------------------------------ intake

    def queue_workload(self, workload: Any, session: Any) -> None:
        """
        Take a task that waits for a slot; anything else is reported as failed.

        The scheduler does not ask what an executor supports. The error that Airflow raises would end it.
        """
        if not isinstance(workload, ExecuteTask):
            why = f"The Kubernetes executor runs tasks, and no {type(workload).__name__}"
            self.log.error("%s: %s", workload.key, why)
            self.event_buffer[workload.key] = (TaskInstanceState.FAILED, why)
            return
        # The task's key is made of these, and thousands of keys have the same few names.
        ti = workload.ti
        ti.dag_id, ti.task_id, ti.run_id = shared(ti.dag_id), shared(ti.task_id), shared(ti.run_id)
        super().queue_workload(workload, session)

    def execute_async(
        self, key: TaskInstanceKey, command: Any, queue: str | None = None, executor_config: Any = None
    ) -> None:
        """Accept a workload; its pod is created in the next :meth:`sync`."""
        parts = self._parts
        try:
            # A task instance that deferred or was rescheduled comes back under the same key. The pod of its
            # earlier phase has reported and ends by itself; it is not the current launch any more.
            parts.adopter.abandon(key)
            parts.deletion.cancel(key)
            super().execute_async(key=key, command=command, queue=queue, executor_config=executor_config)
            for job in _drain(self.task_queue):
                parts.launch_queue.add(job)
        except Exception as error:  # noqa: BLE001 - logged below
            # A coordinator's template may be broken, for example. The failure concerns this task alone. It is
            # reported in the next sync(): official providers before 10.24 give the task its slot after this
            # call, and the scheduler ignores a report about a task that has a slot.
            self._isolation.gave_up("intake", key, error)
            why = f"Workload could not be accepted: {describe(error)}"
            launch = Launch(key, str(command[0].ti.id))
            self._isolation.run("intake", parts.launch_queue.fail, launch, why, not_built(why))
        # Upstream's count of attempts is not used, and would grow with every task.
        self.pod_launch_attempts.pop(key, None)

    # ------------------------------------------------------------------ the loop

    def sync(self) -> None:
        """Handle what has arrived since the last time. Waits for the database, never for Kubernetes."""
        run, parts = self._isolation.run, self._parts
        run("policies", parts.policies.tick)
        run("revive", parts.reconciler.revive)
        self._turn_began = self._clock()
        run("clean-up", parts.deletion.tick, self._last_message)
        has_more = run("receive", self._receive, self._clock() + RECEIVE_BUDGET)
        run("track", parts.event_filter.tick)
        try:
            self._send_held_callbacks()
            run("report", parts.reports.tick)
            run("superseded", self._settle_superseded)
            has_more |= run("settle", parts.reconciler.tick, self._clock() + SETTLE_BUDGET)
            run("adopt", parts.adopter.continue_)
            run("hold-off", parts.queued_timeout.tick, parts.adopter.waiting())
            run("outages", parts.outages.restore)
            run("outages", parts.outages.tick)
            run("nodes", parts.suspect_nodes.tick)
            has_more |= run("launch", parts.reconciler.launch)
            run("collect", parts.garbage.tick)
            run("trace", parts.traces.emit)
        except DatabaseAwayError as error:
            # Nothing is lost: what could not be settled or launched is still there for the next turn.
            self.log.warning("The metadata database did not answer; trying again in the next loop: %s", error)
        if has_more:
            self._slots.stay_awake()

    def _settle_superseded(self) -> None:
        for pod in self._parts.superseded_pods.settle():
            self._isolation.run("superseded", self._parts.event_filter.note_update, PodUpdate.OURS, pod)

    # ------------------------------------------------------------------ what becomes of a launch

    def _receive(self, until: float) -> bool:
        """Handle the messages in the inbox; return whether the time has run out."""
        event_filter = self._parts.event_filter
        for message in chain(event_filter.released(), _drain(self._inbox)):
            self._last_message = self._clock()
            if not self._isolation.attempt("receive", message, event_filter.receive, message):
                self._isolation.run("receive", event_filter.misread, message)
            if self._last_message > until:
                return True
        return False

    # ------------------------------------------------------------------ what the scheduler asks for

    def get_event_buffer(self, dag_ids: list[str] | None = None) -> dict[Any, Any]:
        """Hand the reports over. The scheduler sends the callbacks of those failures next."""
        events = super().get_event_buffer(dag_ids)
        tasks = {key: event for key, event in events.items() if isinstance(key, TaskInstanceKey)}
        self._reported = {key for key, (state, _) in tasks.items() if state == TaskInstanceState.FAILED}
        if self._is_started:
            with suppress(DatabaseAwayError):
                self._isolation.run("report", self._parts.reports.take, tasks)
        return events

    def send_callback(self, request: CallbackRequest) -> None:
        """
        Have a callback run, unless it is about a failure that is not settled yet.

        Airflow sends the callback of a heartbeat timeout before it asks this executor to fail the task. After
        a report of the failure, Airflow sends another callback.
        """
        if isinstance(request, TaskCallbackRequest):
            ti = request.ti
            key = TaskInstanceKey(ti.dag_id, ti.task_id, ti.run_id, ti.try_number, ti.map_index)
            if key not in self._reported and self._settles(key):
                self._held_callbacks.append((key, request))
                return
            if self._is_started:
                try:
                    self._isolation.run("callback", notifications.carry_context, request, key)
                except DatabaseAwayError:
                    self.log.warning("The callback of %s gets no context: no answer from the database", key)
        super().send_callback(request)

    def _send_held_callbacks(self) -> None:
        """
        Send callbacks that no guess has followed: they were about other failures.

        :raises DatabaseAwayError: if the database does not answer; what was not sent is still held
        """
        for item in list(self._held_callbacks):
            self._isolation.alone(
                "callback",
                item,
                self._send_held_callback,
                name=lambda item: item[0],
                give_up=lambda item, _: self._held_callbacks.remove(item),
            )

    def _send_held_callback(self, item: _HeldCallback) -> None:
        key, request = item
        self._isolation.run("callback", notifications.carry_context, request, key)
        super().send_callback(request)
        self._held_callbacks.remove(item)

    def change_state(self, key: Any, state: Any, info: Any = None, remove_running: bool = True) -> None:
        """
        Report a state, unless the state is the scheduler's guess about a worker without a heartbeat.

        A guess is evidence, and settled like the end of a pod. The guess stands if an error prevents that.
        """
        is_guess = state == TaskInstanceState.FAILED and info is None and remove_running
        is_noted = (
            is_guess
            and self._settles(key)
            and self._isolation.attempt(
                "heartbeat-timeout", key, self._parts.running_workers.note_heartbeat_timeout, key
            )
        )
        if not is_noted:
            super().change_state(key, state, info, remove_running)
            return
        # Airflow sends its callback right before the guess. An earlier one is about something else.
        if held := next((item for item in reversed(self._held_callbacks) if item[0] == key), None):
            self._held_callbacks.remove(held)

    def _settles(self, key: TaskInstanceKey) -> bool:
        return self._is_started and self._parts.running_workers.settles(key)

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Take a task instance out of the executor and delete its pod, without reporting anything."""
        key = ti.key
        self._slots.forget_queued(key)
        self._slots.free(key)
        if not self._is_started:
            return
        # Each by itself: the scheduler revokes others after this one.
        run, parts = self._isolation.run, self._parts
        run("revoke", parts.adopter.abandon, key)
        run("revoke", parts.deletion.revoke_given_up, key)
        if launch := self._registry.release(key):
            run("revoke", parts.deletion.revoke, launch)
            try:
                run("revoke", parts.recorder.record_revoked, launch)
            except DatabaseAwayError:
                self.log.warning("Why %s is taken back is not recorded: no answer from the database", key)
            self._parts.traces.cancelled(launch)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """
        Take over the task instances of a dead scheduler; return those that have to be reset.

        Only a task that was running and has no pod any more is reset, unless it has an infrastructure budget:
        then its loss is settled like any other. A task instance that is still queued goes on in the same try,
        with its pod or with a new one.
        """
        tags = {"team_name": self.team_name} if self.team_name else {}
        with stats().timer("kubernetes_executor.adopt_task_instances.duration", tags=tags):
            try:
                return self._parts.adopter.adopt(tis)
            except DatabaseAwayError as error:
                raise error.__cause__ or error from None  # Airflow repeats the offer
            except Exception as error:  # noqa: BLE001 - the scheduler would end, and so would the next; logged below
                self._isolation.gave_up("adopt", f"{len(tis)} task instances", error)
                # Task instances with a slot are noted, and their pods are searched for again. The others may
                # run, so none is reset: Airflow limits how long they may be silent or queued.
                return []

    def debug_dump(self) -> None:
        """Log the state of each launch, at SIGUSR2 of the scheduler."""
        super().debug_dump()  # type: ignore[no-untyped-call]
        lines = list(self._registry.describe(self._clock()))
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
        names = map(str.strip, self.kube_config.multi_namespace_mode_namespace_list or ())
        return tuple(dict.fromkeys(filter(None, names))) or (None,)

    @staticmethod
    def get_cli_commands() -> list[GroupCommand]:
        """
        Return the official executor's commands and ours, for Airflow 3.1; later ones ask the providers.

        Airflow refuses to run any command if one comes twice: the official executor beside ours has its own.
        """
        if any(name.module_path == _OFFICIAL for name in ExecutorLoader.get_executor_names()):
            return get_cli_commands()
        return [*UpstreamKubernetesExecutor.get_cli_commands(), *get_cli_commands()]

    # ------------------------------------------------------------------ small things

    @property
    def label(self) -> str:
        """Return what tells this executor from the others of its scheduler, also after a restart."""
        name = self.name.alias or self.name.module_path if self.name else type(self).__name__
        return self._make_safe_label_value(f"{self.team_name}.{name}" if self.team_name else name)


def _drain(queue: Any) -> Iterator[Any]:
    """Take out of a queue, one by one, what is there now; what arrives meanwhile waits for the next turn."""
    for _ in range(queue.qsize()):
        try:
            yield queue.get_nowait()
        except Empty:
            return
