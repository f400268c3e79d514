# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Queues launches until they are due, and builds their pods.

Two other items wait for the end of earlier pods: the report of a failed launch, and a task instance without a
job, which the scheduler queues again.

All of this runs in the scheduler's thread. The Kubernetes thread makes the calls, and answers through the
executor's inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.exceptions import PodMutationHookException, PodReconciliationError
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import (
    annotations_for_logging_task_metadata,
)
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from attrs import define
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.outages import Outages
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Launch,
    LaunchState,
    Waiting,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.masking import describe
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    awaits_launch,
    standing,
)
from airflow_resilience import ledger
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action
from airflow_resilience.ledger_entries import Histories, LedgerEntry
from airflow_resilience.propagation import audit
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.retry_policy.evidence import Phase

log = logging.getLogger(__name__)


BUILD_BUDGET = 0.2
"""Seconds that a turn of the scheduler's loop may spend on building pods, some 400 of them."""

CREATE_BATCH = 500
"""Launches that are read from the database at once. A turn has no time to build more."""


@dataclass(frozen=True, slots=True)
class NotLaunched:
    """A launch whose pod is not created."""

    launch: Launch
    why: str | None = None
    """The failure to report; None if the task instance is not queued by this scheduler any more."""
    context: ExecutionContext | None = None
    """The failure for callbacks and the audit log; None if the context is stored already."""
    error: Exception | None = None
    """The exception that keeps the launch from being handled."""
    runs: bool = False
    """Whether another worker has started its task instance, which is this scheduler's."""


class _Read(NamedTuple):
    """Facts in the database about a launch that is due."""

    launch: Launch
    row: TaskInstanceRow | None
    histories: Histories
    failed: ExecutionContext | None
    """Context of the previous try's failure; None without one, or if unknown."""

    @property
    def lost(self) -> LedgerEntry | None:
        """The loss after which the task runs again; None if it does not."""
        losses = self.histories.whole_try.entries
        return next((entry for entry in losses if entry.next_ti_id == self.launch.ti_id), None)


@define(kw_only=True, eq=False, repr=False, slots=False)
class LaunchQueue:
    """Asks for the pods of launches that wait, when they are due."""

    _builder: PodBuilder
    """Builds pods."""
    _registry: LaunchRegistry
    _create_retries: CreateRetries
    """Makes the create calls."""
    _outages: Outages
    """Say what is away."""
    _isolation: Isolation
    _job_id: int | None
    _clock: Callable[[], float]

    def add(self, job: KubernetesJob) -> None:
        """Queue the launch of a task instance. A launch that waits under the same key is replaced."""
        workload: Any = job.command[0]  # the type hint is of Airflow 2
        self._registry.make_current(Launch(key=job.key, ti_id=str(workload.ti.id), waiting=Waiting(job)))

    def relaunch(self, launch: Launch, entry: LedgerEntry | None) -> None:
        """
        Queue the relaunch of a task instance.

        The job of an adopted launch is not known here. The scheduler then queues its task instance again, in
        the same try.

        :param entry: the decision about the failed launch; None if the launch has not failed
        """
        ti_id = entry.next_ti_id if entry and entry.next_ti_id else launch.ti_id
        waiting = Waiting(
            job=launch.workload.job(launch.key, ti_id) if launch.workload else None,
            not_before=self._clock() + (_seconds_until(entry) if entry else 0.0),
            is_relaunch=launch.workload is not None,
            previous_name=launch.name,
        )
        relaunch = Launch(key=launch.key, ti_id=ti_id, waiting=waiting)
        # A worker that had begun its task had the dependency for which its launch was held.
        if entry is None or entry.phase is Phase.LAUNCH:
            relaunch.held_for, relaunch.held_since = launch.held_for, launch.held_since
        self._registry.make_current(relaunch)

    def fail(self, launch: Launch, why: str, context: ExecutionContext | None = None) -> None:
        """
        Queue the report that a task instance has failed, until no pod of it can start any more.

        :param launch: the failed launch, which is followed again if its pod starts first
        :param context: the failure for callbacks and the audit log; None if the ledger has the context
        """
        waiting = Waiting(job=None, is_relaunch=True, fails=why, context=context)
        self._registry.make_current(Launch(key=launch.key, ti_id=launch.ti_id, waiting=waiting))

    def create_due(self) -> tuple[list[NotLaunched], bool]:
        """
        Ask for the pods of the launches that are due, as many as one turn may take.

        :return: the launches that are given up, and whether some are left to the next call
        :raises DatabaseAwayError: if the database does not answer; everything waits on then
        """
        not_launched: list[NotLaunched] = []

        def cannot(launch: Launch, error: Exception) -> None:
            not_launched.append(NotLaunched(launch, error=error))

        # The return of a task instance takes no time, and is committed when the rows are read.
        due = sorted(self._due(self._clock()), key=lambda launch: not launch.is_handed_back)
        is_more, due = len(due) > CREATE_BATCH, due[:CREATE_BATCH]
        read = self._isolation.batch("launch", due, self._read, name=_key, give_up=cannot) if due else []
        began = self._clock()
        for item in read:
            self._isolation.alone(
                "build",
                item,
                lambda item: not_launched.extend(self._create(item)),
                name=lambda item: _key(item.launch),
                give_up=lambda item, error: cannot(item.launch, error),
            )
            if self._clock() - began > BUILD_BUDGET:
                return not_launched, True
        return not_launched, is_more

    def _due(self, now: float) -> list[Launch]:
        return [
            launch
            for launch in self._registry.in_state(LaunchState.WAITING)
            if launch.waiting and self._is_due(launch.key, launch.waiting, now)
        ]

    def _is_due(self, key: TaskInstanceKey, waiting: Waiting, now: float) -> bool:
        if waiting.fails:
            return self._registry.is_stopped(key, now)
        # The scheduler that is handed a task instance knows nothing of a pod that still departs. The ledger
        # has the time when the launch is due.
        is_due = waiting.not_before <= now or waiting.job is None
        return is_due and self._registry.is_clear(key, now)

    def _read(self, due: Sequence[Launch]) -> list[_Read]:
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({launch.ti_id for launch in due}, session=session)
            ti_ids = {launch.key: launch.ti_id for launch in due}
            histories = ledger.read_histories(ti_ids, session=session)
            failures = audit.read_previous_failures([launch.key for launch in due], session=session)
            _record_reported(due, session)
            relaunches = {launch.ti_id for launch in due if launch.waiting and launch.waiting.is_relaunch}
            handed_back = {launch.ti_id for launch in due if launch.is_handed_back}
            failed = {
                launch: last
                for launch in due
                if not launch.is_handed_back
                and (last := histories[launch.key].launches.last)
                and last.decision.action is not Action.RELAUNCH
            }
            settled = handed_back | {launch.ti_id for launch in failed}
            locked = task_instances.lock_rows(relaunches | settled, session=session)
            own = {row.ti_id for row in locked.values() if row.queued_by_job_id == self._job_id}
            # The replacement has all of the time that Airflow gives a pod to start.
            task_instances.refresh_queued(own & relaunches, session=session)
            task_instances.reschedule(own & handed_back, session=session)
            held = {
                launch.key: entry
                for launch, entry in failed.items()
                if awaits_launch(locked.get(launch.ti_id), launch.key, job_id=self._job_id)
            }
            task_instances.write_failed(held, TaskInstanceState.QUEUED, session=session)
        rows |= locked
        return [
            _Read(launch, rows.get(launch.ti_id), histories[launch.key], failures.get(launch.key))
            for launch in due
            # A row that somebody else has locked is reported, or handed back, in a later turn.
            if launch.ti_id not in settled or launch.ti_id in locked or launch.ti_id not in rows
        ]

    def _create(self, read: _Read) -> Iterable[NotLaunched]:
        launch, last, waiting = read.launch, read.histories.launches.last, read.launch.waiting
        if waiting is None:
            raise AssertionError("a launch that is due waits")
        if launch.is_handed_back:
            log.info("%s is handed back to the scheduler, which queues it again in the same try", launch.key)
            yield NotLaunched(launch)
            return
        if (decided := last or read.lost) and not waiting.is_relaunch:
            # Another scheduler has decided on this relaunch, and has died or handed it over. The ledger says
            # when it is due.
            waiting.is_relaunch = True
            seconds = _seconds_until(decided)
            waiting.not_before = self._clock() + seconds
            if seconds > 0:
                return
        if not awaits_launch(read.row, launch.key, job_id=self._job_id):
            log.info("Not launching %s: it is not queued by this scheduler any more", launch.key)
            runs = standing(read.row, launch.key, job_id=self._job_id) is Standing.RUNNING
            yield NotLaunched(launch, runs=runs)
        elif waiting.fails:
            yield NotLaunched(launch, waiting.fails, waiting.context)
        elif last and last.decision.action is not Action.RELAUNCH:
            yield NotLaunched(launch, _undelivered(launch, last))
        elif why := self._build(read, _previous_run(launch, decided, read.failed)):
            yield NotLaunched(launch, why, not_built(why))
        elif launch.creation:
            self._create_retries.ask(launch)

    def _build(self, read: _Read, previous: StoredContext | None) -> str | None:
        """Build the pod of a launch, and hold it if what the pod needs is away; return why there is none."""
        launch, (launches, whole_try) = read.launch, read.histories
        try:
            creation = self._builder.build(launch, launches, read.lost, previous, whole_try.mutations)
        except PodMutationHookException as error:
            log.exception("The pod mutation hook failed for %s", launch.key)
            return f"Pod mutation hook failed: {describe(error.__cause__ or error)}"
        except PodReconciliationError as error:
            log.exception("Template, configuration and override could not be merged for %s", launch.key)
            return f"Pod could not be put together: {describe(error.__cause__ or error)}"
        except Exception as error:
            # A template that cannot be read, for example. The failure concerns this task alone.
            log.exception("No pod could be built for %s", launch.key)
            return f"Pod could not be built: {describe(error)}"
        if not self._outages.hold_back(launch, creation.body):
            metadata = creation.body["metadata"]
            shown = annotations_for_logging_task_metadata(metadata["annotations"])  # type: ignore[no-untyped-call]
            log.info("Creating pod %s for %s with annotations %s", metadata["name"], launch.key, shown)
            self._registry.create(launch, creation)
        return None


def _record_reported(due: Sequence[Launch], session: Session) -> None:
    """
    Record the reasons that workers have stored for the previous tries.

    Usually the reasons are recorded when the pods have ended, but a pod may end late. The start of the next
    try removes the stored reasons.
    """
    before = [
        launch.key._replace(try_number=launch.key.try_number - 1)
        for launch in due
        if launch.key.try_number > 1
    ]
    audit.record_reported(task_instances.read_former_ids(before, session=session), session=session)


def not_built(why: str) -> ExecutionContext:
    """Say why there is no pod: a template, a configuration or a workload that cannot be used."""
    return ExecutionContext(
        StateChangeCategory.APPLICATION,
        StateChangeReason.START_ERROR,
        ContextSource.EXECUTOR,
        {MetadataKey.MESSAGE.value: why},
    )


def _previous_run(
    launch: Launch, decided: LedgerEntry | None, failed: ExecutionContext | None
) -> StoredContext | None:
    """Return the end of the previous run, for the worker of a launch."""
    if decided:
        explanation = decided.decision.explanation
        return StoredContext(launch.ti_id, launch.key.try_number, decided.context, explanation)
    return StoredContext(launch.ti_id, launch.key.try_number, failed) if failed else None


def _undelivered(launch: Launch, entry: LedgerEntry) -> str:
    """
    Describe a failure of this try with a decision and without a report: the deciding scheduler has died.

    A reported failure does not come here again: the next try has another number, and a cleared task
    instance has another UUID.
    """
    log.warning("%s is not launched: its last launch has failed, and is not to be repeated", launch.key)
    return (
        f"Pod {entry.worker_name} failed before the task's process had started: reason {entry.reason}; "
        f"{entry.decision.explanation}"
    )


def _key(launch: Launch) -> TaskInstanceKey:
    return launch.key


def _seconds_until(entry: LedgerEntry) -> float:
    if entry.due is None:
        return 0.0
    seconds = (entry.due - datetime.now(UTC)).total_seconds()
    # Another scheduler may have written it, with a clock that is ahead of ours.
    return min(max(0.0, seconds), entry.decision.delay)
