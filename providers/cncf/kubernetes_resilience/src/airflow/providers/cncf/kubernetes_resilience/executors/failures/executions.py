# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Settles launches that were lost while their task was running.

Within its infrastructure budget a task runs again in the same try, under a new UUID: the ledger's row, which
counts it, and the new UUID, which keeps the lost worker from reporting about the next run, are one
transaction under the row's lock.

.. seealso:: https://cwiki.apache.org/confluence/display/AIRFLOW/AIP-97+Infrastructure-Aware+Task+Execution+and+Context+Propagation
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy.orm import Session
from uuid6 import uuid7

from airflow.providers.cncf.kubernetes_resilience.executors.failures.assessment import Report
from airflow.providers.cncf.kubernetes_resilience.executors.failures.outcome import (
    Decided,
    Settled,
    make_entry,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.launches.hosts import Place, locate
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.orphan import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.profiles import read_profiles
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    standing,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import classify
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    PodFailure,
    find_unreported_end,
)
from airflow_resilience import ledger
from airflow_resilience.decision import NO_POLICY, Action, Decision
from airflow_resilience.ledger import LaunchHistory, LedgerEntry
from airflow_resilience.propagation.database import write_failures
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.selection import TaskProfile

REPORT_GRACE = 2.0
"""Seconds after the end of its pod in which a worker's report may still be under way. It wins then."""


_NO_BUDGET = Decision(
    action=Action.COUNT,
    policy=NO_POLICY,
    rule="no-infrastructure-budget",
    explanation="the task has no infrastructure budget",
)
"""Without a budget no rule is asked. The ledger says all the same why the task has failed."""


class Executions:
    """
    Settles lost launches of running tasks.

    :param policies: the retry policies in force, with the infrastructure budget
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(self, *, policies: RetryPolicies, job_id: int | None, clock: Callable[[], float]) -> None:
        self._policies = policies
        self._job_id = job_id
        self._clock = clock

    def decide(self, lost: Sequence[Launch], session: Session) -> list[Settled]:
        """Settle what can be settled now; the others are left to a later turn."""
        profiles = read_profiles({launch.ti_id for launch in lost}, session=session)
        due = []
        for launch in lost:
            profile = profiles.get(launch.ti_id)
            if profile is None:
                continue  # it was cleared since; the launch is assessed again
            has_budget = bool(self._policies.infrastructure_budget(profile))
            if self._clock() - launch.ended_at < REPORT_GRACE and (has_budget or launch.failure is None):
                continue
            due.append(launch)
        return self._decide(due, profiles, session)

    def with_budget(self, ti_ids: Collection[str]) -> set[str]:
        """
        Return which of these task instances may run again after a loss.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
        """
        with create_session(scoped=False) as session:
            profiles = read_profiles(ti_ids, session=session)
        budget = self._policies.infrastructure_budget
        return {ti_id for ti_id, profile in profiles.items() if budget(profile)}

    def find_running(self, keys: Collection[TaskInstanceKey]) -> list[Orphan]:
        """
        Return those of these task instances that run under this scheduler, and may run again after a loss.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
        """
        with create_session(scoped=False) as session:
            ti_ids = task_instances.read_ids(keys, session=session)
            rows = task_instances.read_rows(set(ti_ids.values()), session=session)
        running = [
            Orphan(key, ti_id, row.state, row.hostname, row.queued_by_job_id)
            for key, ti_id in ti_ids.items()
            if (row := rows.get(ti_id)) and row.state == TaskInstanceState.RUNNING
            # Whose it is counts: another scheduler follows the others.
            if standing(row, try_number=key.try_number, job_id=self._job_id) is Standing.RUNNING
            if row.queued_by_job_id is not None
        ]
        kept = self.with_budget({orphan.ti_id for orphan in running}) if running else set()
        return [orphan for orphan in running if orphan.ti_id in kept]

    def read_decided(self, gone: Sequence[Launch], session: Session) -> list[Settled]:
        """
        Return what was decided about launches whose task instance has another UUID since.

        The commit had no answer, or what follows it has failed.
        """
        ti_ids = task_instances.read_ids({launch.key for launch in gone}, session=session)
        histories = ledger.read_infrastructure_histories(ti_ids, session=session)
        found = [
            (launch, _loss_of(launch, histories[launch.key])) for launch in gone if launch.key in histories
        ]
        return [_settled(launch, entry) for launch, entry in found if entry and entry.next_ti_id]

    def _decide(
        self, due: Sequence[Launch], profiles: Mapping[str, TaskProfile], session: Session
    ) -> list[Settled]:
        if not due:
            return []
        locked = task_instances.lock_rows({launch.ti_id for launch in due}, session=session)
        held = [launch for launch in due if self._runs(launch, locked.get(launch.ti_id))]
        ti_ids = {launch.key: launch.ti_id for launch in held}
        histories = ledger.read_infrastructure_histories(ti_ids, session=session)
        decided, new = {}, []
        for launch in held:
            before = _loss_of(launch, histories[launch.key])
            if before is None:
                new.append(launch)
            decided[launch] = before or self._make_entry(
                launch, histories[launch.key], profiles[launch.ti_id]
            )
        self._write({launch: decided[launch] for launch in new}, session)
        return [_settled(launch, entry) for launch, entry in decided.items()]

    def _runs(self, launch: Launch, row: TaskInstanceRow | None) -> bool:
        """Whether, under the row's lock, the task still runs in this launch and is this scheduler's."""
        if row is None or row.state != TaskInstanceState.RUNNING:
            return False
        now = standing(row, try_number=launch.key.try_number, job_id=self._job_id)
        return now is Standing.RUNNING and launch.runs(row.hostname)

    def _make_entry(self, launch: Launch, history: LaunchHistory, profile: TaskProfile) -> LedgerEntry:
        failure = _failure(launch)
        # Airflow may have learned of the start of a worker that has failed as a launch before.
        before = history.of_worker(launch.worker_uid)
        never_began = before is not None and _had_ended_before_its_start(launch, before, failure)
        classified = classify(
            failure,
            launch_number=launch.number,
            infrastructure_attempt=history.relaunches + 1,
            phase=Phase.LAUNCH if never_began else Phase.EXECUTION,
        )
        decision = (
            self._policies.decide(failure, classified, Phase.EXECUTION, history, profile)
            if self._policies.infrastructure_budget(profile)
            else _NO_BUDGET
        )
        return replace(
            make_entry(launch, failure, classified, decision),
            phase=Phase.EXECUTION,
            next_ti_id=str(uuid7()) if decision.action is Action.RELAUNCH else None,
        )

    def _write(self, entries: Mapping[Launch, LedgerEntry], session: Session) -> None:
        """Write down what was decided; all of these rows are locked."""
        ledger.record([(launch.key, entry) for launch, entry in entries.items()], session=session)
        new_ids = {entry.ti_id: entry.next_ti_id for entry in entries.values() if entry.next_ti_id}
        if new_ids:
            task_instances.run_again(new_ids, at=datetime.now(UTC), session=session)
        for_good = {entry.ti_id for entry in entries.values() if entry.decision.action is Action.FAIL}
        task_instances.forbid_retries(for_good, TaskInstanceState.RUNNING, session=session)
        write_failures(
            {
                launch.key: (entry.ti_id, entry.context)
                for launch, entry in entries.items()
                if entry.decision.action is not Action.RELAUNCH
            },
            session=session,
        )


def _settled(launch: Launch, entry: LedgerEntry) -> Settled:
    failure = _failure(launch)
    if entry.decision == _NO_BUDGET:
        return Settled(launch, Report(TaskInstanceState.FAILED), failure, entry)
    return Settled(launch, Decided(entry, failure))


def _loss_of(launch: Launch, history: LaunchHistory) -> LedgerEntry | None:
    """Return the loss of a launch that was decided before. Of its worker perhaps only the host is known."""
    for entry in history.entries:
        if entry.phase is not Phase.EXECUTION or entry.ti_id != launch.ti_id:
            continue
        is_same_host = locate(launch.name, name=entry.worker_name) is Place.HERE
        if entry.worker_uid == launch.worker_uid or (launch.ref is None and is_same_host):
            return entry
    return None


def _had_ended_before_its_start(launch: Launch, entry: LedgerEntry, failure: PodFailure) -> bool:
    """Whether a worker had ended when its task was still queued, so that it has run none of its code."""
    has_ended = failure.facts.is_terminal or failure.facts.has_lost_worker
    return has_ended and not launch.has_outlived(entry, failure.facts)


def _failure(launch: Launch) -> PodFailure:
    return launch.failure or find_unreported_end(launch.last_seen)
