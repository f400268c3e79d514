# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Settles launches that have ended: read the rows, assess, decide, write the ledger.

That is one transaction for many launches. Nothing is acted on here. What is returned has been committed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.failures.assessment import (
    Assessment,
    ExecutionFailed,
    Keep,
    LaunchFailed,
    Postpone,
    Release,
    Report,
    assess,
    is_pre_execution_failure,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.outcome import Settled, make_entry
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import Failed, Recorder
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskSnapshot
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import classify
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    find_obstacle,
)
from airflow_resilience import ledger
from airflow_resilience.decision import NO_POLICY, Action, Decision
from airflow_resilience.propagation import audit
from airflow_resilience.propagation.database import write_failures
from airflow_resilience.retry_policy.evidence import Phase

_TAKEN_BACK = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="task-queued-timeout",
    explanation="Airflow takes the task instance back, which was queued for longer than [scheduler]"
    " task_queued_timeout: it queues it again, and fails it the third time",
)


class Settlement:
    """
    Settles ended launches.

    :param slots: tell whether the next phase of a task instance is queued
    :param recorder: decides about those that have failed
    :param job_id: this scheduler's job
    """

    def __init__(self, *, slots: Slots, recorder: Recorder, job_id: int | None) -> None:
        self._slots = slots
        self._recorder = recorder
        self._job_id = job_id

    def settle(self, ended: Sequence[Launch]) -> list[Settled]:
        """
        Settle what can be settled now; launches whose row somebody else has locked are left out.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer, or refuses one of them;
            nothing is settled then
        """
        # Not the thread's scoped session, which may be in the middle of the scheduler's own transaction.
        with create_session(scoped=False) as session:
            ti_ids = {launch.key: launch.ti_id for launch in ended}
            tasks = task_instances.read_snapshots(ti_ids, session=session)
            restarting = {key for key, task in tasks.items() if task.is_restarting}
            cleared = [
                launch for launch in ended if tasks[launch.key].row is None and launch.key not in restarting
            ]
            settled = self._recorder.read_decided(cleared, session)
            known = {item.launch for item in settled}
            failed = []
            for launch in ended:
                if launch in known:
                    continue
                assessment = self._assess(launch, tasks[launch.key])
                match assessment:
                    case LaunchFailed():
                        failed.append(Failed(launch, Phase.LAUNCH))
                    case ExecutionFailed():
                        failed.append(Failed(launch, Phase.EXECUTION))
                    case Report() | Release() | Keep():
                        settled.append(Settled(launch, assessment))
                    case Postpone():
                        pass
                    case _:
                        assert_never(assessment)
            audit.record_reported(_ended_by_themselves(settled), session=session)
            settled = _record_cleared(settled, restarting, session)
            return settled + self._recorder.record(failed, session)

    def is_queued(self, key: TaskInstanceKey, ti_id: str) -> bool:
        """
        Whether a task instance still waits for its launch: no worker runs it.

        :raises sqlalchemy.exc.SQLAlchemyError: if that cannot be found out
        """
        with create_session(scoped=False) as session:
            row = task_instances.read_rows({ti_id}, session=session).get(ti_id)
        is_queued = is_pre_execution_failure(row, try_number=key.try_number, job_id=self._job_id)
        return is_queued and not self._slots.is_queued_again(key)

    def record_taken_back(self, launch: Launch) -> None:
        """
        Write down what has kept the worker of a launch from starting that Airflow takes back, and commit.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take it
        """
        failure = find_obstacle(launch.facts) if launch.facts else None
        if failure is None:
            return
        classified = classify(failure, launch_number=launch.number)
        entry = make_entry(launch, failure, classified, _TAKEN_BACK)
        with create_session(scoped=False) as session:
            if task_instances.lock_rows({launch.ti_id}, session=session):
                ledger.record([(launch.key, entry)], session=session)
                write_failures({launch.key: (launch.ti_id, entry.context)}, session=session)

    def _assess(self, launch: Launch, task: TaskSnapshot) -> Assessment:
        return assess(
            launch.failure,
            task.row,
            try_number=launch.key.try_number,
            job_id=self._job_id,
            queued_again=self._slots.is_queued_again(launch.key),
            runs_here=task.row is None or launch.runs(task.row.hostname),
            adopted_from=launch.adopted_from,
            restarting=task.is_restarting,
            restarts_by=task.restarts_by,
        )


def _record_cleared(
    settled: Sequence[Settled], restarting: Collection[TaskInstanceKey], session: Session
) -> list[Settled]:
    """Write down which tries have ended because they were cleared, and leave out what somebody has locked."""
    cleared = {item.launch.key: item.launch.ti_id for item in settled if item.launch.key in restarting}
    if not cleared:
        return list(settled)
    ti_ids = task_instances.read_ids(cleared, session=session)
    locked = task_instances.lock_rows(set(ti_ids.values()), session=session)
    held = {key: cleared[key] for key, ti_id in ti_ids.items() if ti_id in locked}
    audit.record_cleared(held, session=session)
    return [item for item in settled if item.launch.key in held or item.launch.key not in cleared]


def _ended_by_themselves(settled: Collection[Settled]) -> dict[TaskInstanceKey, str]:
    """Return the tries, and their UUIDs, whose worker may have said why they have failed."""
    return {
        item.launch.key: item.launch.ti_id
        for item in settled
        if isinstance(item.outcome, Report | Release)
        if item.outcome != Report(TaskInstanceState.SUCCESS)
    }
