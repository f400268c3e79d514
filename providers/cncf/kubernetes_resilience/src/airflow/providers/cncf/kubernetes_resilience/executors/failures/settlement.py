# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Settles launches: read the rows, judge, decide about those that have failed, write the ledger.

That is one transaction for many launches. Nothing is acted on here. What is returned has been committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Asked,
    ExecutionFailed,
    Keep,
    LaunchFailed,
    Release,
    Report,
    Settled,
    Situation,
    Step,
    judge,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import Failed, Recorder
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Try
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskSnapshot, awaits_launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow_resilience.propagation import audit
from airflow_resilience.retry_policy.evidence import Phase


class Settlement:
    """
    Settles launches.

    :param slots: tell whether the next phase of a task instance is queued
    :param recorder: decides about those that have failed
    :param create_retries: say how those have failed whose pod was not created
    """

    def __init__(
        self, *, slots: Slots, recorder: Recorder, create_retries: CreateRetries, job_id: int | None
    ) -> None:
        self._slots = slots
        self._recorder = recorder
        self._create_retries = create_retries
        self._job_id = job_id

    def settle(self, asked: Sequence[Asked]) -> list[Settled]:
        """
        Settle what can be settled now; launches whose row somebody else has locked are left out.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer, or refuses one of them;
            nothing is settled then
        """
        judged: list[Settled] = []
        failed: list[Failed] = []
        # Not the thread's scoped session, which may be in the middle of the scheduler's own transaction.
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots({item.launch.tried for item in asked}, session=session)
            settled = self._recorder.read_decided(_find_cleared(asked, tasks), session)
            known = {item.launch for item in settled}
            for item in asked:
                if item.launch in known:
                    continue
                task = tasks[item.launch.tried]
                queued_again = self._slots.is_queued_again(item.launch.key)
                verdict = judge(
                    item.situation, item.launch, task, job_id=self._job_id, queued_again=queued_again
                )
                match verdict:
                    case LaunchFailed():
                        failed.append(Failed(item.launch, Phase.LAUNCH))
                    case ExecutionFailed():
                        failed.append(Failed(item.launch, Phase.EXECUTION))
                    case Report() | Release() | Keep():
                        settled.append(Settled(item.launch, verdict))
                    case Step.FAIL:
                        # If this is not committed, it has ended, and is asked about as such.
                        self._create_retries.end(item.launch)
                        failed.append(Failed(item.launch, Phase.LAUNCH))
                    case Step.WAIT:
                        pass
                    case _:
                        judged.append(Settled(item.launch, verdict, item.situation, task.owner))
            audit.record_reported(_ended_by_themselves(settled), session=session)
            settled = _record_cleared(settled, tasks, session)
            return [*settled, *self._recorder.record(failed, session), *judged]

    def is_queued(self, key: TaskInstanceKey, ti_id: str) -> bool:
        """
        Whether a task instance still waits for its launch: no worker runs it.

        :raises sqlalchemy.exc.SQLAlchemyError: if that cannot be found out
        """
        with create_session(scoped=False) as session:
            row = task_instances.read_rows({ti_id}, session=session).get(ti_id)
        is_queued = awaits_launch(row, key, job_id=self._job_id)
        return is_queued and not self._slots.is_queued_again(key)


def _find_cleared(asked: Sequence[Asked], tasks: Mapping[Try, TaskSnapshot]) -> list[Launch]:
    """Return the ended launches whose task instances are gone, or have another UUID."""
    return [
        launch
        for launch, situation in asked
        if situation is Situation.ENDED and tasks[launch.tried] == TaskSnapshot(None)
    ]


def _record_cleared(
    settled: Sequence[Settled], tasks: Mapping[Try, TaskSnapshot], session: Session
) -> list[Settled]:
    """Write down which tries have ended because they were cleared, and leave out what somebody has locked."""
    cleared = {
        item.launch: row.ti_id
        for item in settled
        if (row := tasks[item.launch.tried].restarting) and isinstance(item.outcome, Report)
    }
    if not cleared:
        return list(settled)
    locked = task_instances.lock_rows(set(cleared.values()), session=session)
    held = {launch.key: launch.ti_id for launch, ti_id in cleared.items() if ti_id in locked}
    audit.record_cleared(held, session=session)
    return [item for item in settled if item.launch.key in held or item.launch not in cleared]


def _ended_by_themselves(settled: Collection[Settled]) -> dict[TaskInstanceKey, str]:
    """Return the tries, and their UUIDs, whose worker may have said why they have failed."""
    return {
        item.launch.key: item.launch.ti_id
        for item in settled
        if isinstance(item.outcome, Report | Release)
        if item.outcome != Report(TaskInstanceState.SUCCESS)
    }
