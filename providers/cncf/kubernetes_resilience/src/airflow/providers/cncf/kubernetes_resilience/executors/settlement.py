# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What becomes of launches that have ended: read the database, judge, decide, write the ledger.

One transaction for everything that a turn of the scheduler's loop has to settle. Nothing is acted upon in
here; what comes back has been committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.executors.verdict import Judgement, Verdict, judge
from airflow.providers.cncf.kubernetes_resilience.pods.classify import (
    PodFailure,
    find_silent_exit,
    is_pre_execution_failure,
)
from airflow_resilience import ledger
from airflow_resilience.ledger import LaunchHistory, LedgerEntry
from airflow_resilience.policy import Action, Decision, LaunchFailurePolicy


@dataclass(frozen=True, slots=True)
class Ended:
    """A current launch whose pod has ended or was given up on."""

    launch: Launch
    failure: PodFailure | None
    """None if the pod succeeded."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is to be done about a launch that has ended; the database agrees to it."""

    launch: Launch
    failure: PodFailure | None
    judgement: Judgement
    decision: Decision | None = None
    """The policy's decision; None unless the judgement is that of a launch failure."""


class Settlement:
    """
    Settles ended launches.

    :param policy: how often to relaunch
    :param excluded_container_reasons: reasons of the worker container that are left to the task's retries
    :param job_id: this scheduler's job
    :param queued_again: tells whether the executor holds a task instance's next phase already
    :param now: the time, with a time zone
    """

    def __init__(
        self,
        *,
        policy: LaunchFailurePolicy,
        excluded_container_reasons: frozenset[str],
        job_id: int | None,
        queued_again: Callable[[TaskInstanceKey], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._policy = policy
        self._excluded = excluded_container_reasons
        self._job_id = job_id
        self._queued_again = queued_again
        self._now = now

    def settle(self, ended: Iterable[Ended]) -> list[Settled]:
        """
        Settle what can be settled now; launches whose row somebody else has locked are left out.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; nothing is settled then
        """
        ended = list(ended)
        # Not the thread's scoped session, which may be in the middle of the scheduler's own transaction.
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({item.launch.ti_id for item in ended}, session=session)
            restarting = task_instances.read_restarting(
                {item.launch.key for item in ended if item.launch.ti_id not in rows}, session=session
            )
            judged = [
                self._judge(item, rows.get(item.launch.ti_id), restarting=item.launch.key in restarting)
                for item in ended
            ]
            failures = [item for item in judged if item.judgement.verdict is Verdict.LAUNCH_FAILURE]
            others = [item for item in judged if item.judgement.verdict is not Verdict.LAUNCH_FAILURE]
            return others + self._decide(failures, session)

    def _judge(self, ended: Ended, row: TaskInstanceRow | None, *, restarting: bool) -> Settled:
        launch = ended.launch
        judgement = judge(
            ended.failure,
            row,
            pod_name=launch.name,
            try_number=launch.key.try_number,
            job_id=self._job_id,
            queued_again=self._queued_again(launch.key),
            restarting=restarting,
        )
        return Settled(launch, ended.failure, judgement)

    def _decide(self, failures: list[Settled], session: Session) -> list[Settled]:
        locked = task_instances.lock_rows({item.launch.ti_id for item in failures}, session=session)
        # The row was read without a lock before: only what holds under the lock counts.
        held = [item for item in failures if self._still_queued(locked.get(item.launch.ti_id))]
        histories = ledger.read_histories(
            {item.launch.key: item.launch.ti_id for item in held}, session=session
        )
        decided = [self._record(item, histories[item.launch.key], session) for item in held]
        self._requeue(decided, session)
        return decided

    def _still_queued(self, row: TaskInstanceRow | None) -> bool:
        return row is not None and row.state == "queued" and row.queued_by_job_id == self._job_id

    def _record(self, item: Settled, history: LaunchHistory, session: Session) -> Settled:
        launch = item.launch
        failure = item.failure
        if failure is None and launch.facts:
            failure = find_silent_exit(launch.facts)
        uid, name = (launch.ref.uid, launch.ref.name) if launch.ref else (launch.launch_id, launch.name)
        if entry := history.of_worker(uid):
            return Settled(launch, failure, item.judgement, entry.decision)
        decision = self._policy.decide(
            pre_execution=is_pre_execution_failure("failed", "queued", failure, self._excluded),
            relaunches=history.relaunches,
        )
        details = failure.details() if failure else {}
        entry = LedgerEntry(launch.ti_id, uid, name, decision, {"launch": launch.number, **details})
        ledger.record(launch.key, entry, session=session)
        return Settled(launch, failure, item.judgement, decision)

    def _requeue(self, decided: Iterable[Settled], session: Session) -> None:
        relaunched = [
            item.launch for item in decided if item.decision and item.decision.action is Action.RELAUNCH
        ]
        task_instances.refresh_queued(
            {launch.ti_id for launch in relaunched}, at=self._now(), session=session
        )
