# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What becomes of launches that have ended: read the database, judge, decide, write the ledger.

One transaction for everything that a turn of the scheduler's loop has to settle. Nothing is acted upon in
here; what comes back has been committed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeGuard

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.failures.assessment import (
    Judgement,
    Verdict,
    judge,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.pacing import paced
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.profiles import read_profiles
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import Classified, classify
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.evidence import make_evidence
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    TOKEN_EXPIRED,
    PodFailure,
    find_expired_token,
    find_silent_exit,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience import ledger
from airflow_resilience.decision import NO_POLICY, Action, Decision
from airflow_resilience.ledger import LaunchHistory, LedgerEntry
from airflow_resilience.retry_policy.engine import decide
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.rule import PolicySet
from airflow_resilience.retry_policy.selection import TaskProfile, select

log = logging.getLogger(__name__)

_EXPIRED = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="token-expired",
    explanation="the worker's token had expired in an outage, which counts against no limit",
)
"""
About a worker that came too late: an outage costs no task and no retry, whatever the policies and limits say.

It is what replaces a pod that is still Pending then, which is no failure at all. This one is written
down because there is one, so that the successor of a scheduler that is killed now does not count it. It ends
by itself: the next launch carries a fresh token, and is replaced only if another outage holds it.
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A current launch whose pod has ended or was given up on."""

    launch: Launch
    failure: PodFailure | None
    """None if the pod succeeded, or its worker ended well while something beside it runs on."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is to be done about a launch that has ended; the database agrees to it."""

    launch: Launch
    failure: PodFailure | None
    judgement: Judgement
    entry: LedgerEntry | None = None
    """What was decided, and why; None unless the judgement is that of a launch failure."""


class Settlement:
    """
    Settles ended launches.

    :param policies: tells the retry policies in force
    :param job_id: this scheduler's job
    :param queued_again: tells whether the executor holds a task instance's next phase already
    :param has_expired: tells whether an outage has kept a launch from starting until its token had expired
    :param now: the time, with a time zone
    """

    def __init__(
        self,
        *,
        policies: Callable[[], PolicySet],
        job_id: int | None,
        queued_again: Callable[[TaskInstanceKey], bool],
        has_expired: Callable[[Launch], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._policies = policies
        self._job_id = job_id
        self._queued_again = queued_again
        self._has_expired = has_expired
        self._now = now

    def settle(self, ended: Iterable[Ended]) -> list[Settled]:
        """
        Settle what can be settled now; launches whose row somebody else has locked are left out.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer, or refuses one of them;
            nothing is settled then
        """
        ended = list(ended)
        # Not the thread's scoped session, which may be in the middle of the scheduler's own transaction.
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({item.launch.ti_id for item in ended}, session=session)
            restarting = task_instances.read_restarting(
                {item.launch.key for item in ended if item.launch.ti_id not in rows}, session=session
            )
            judged = [self._judge(item, rows.get(item.launch.ti_id), restarting) for item in ended]
            failures = [item for item in judged if item.judgement.verdict is Verdict.LAUNCH_FAILURE]
            undecided = (Verdict.LAUNCH_FAILURE, Verdict.POSTPONE)
            others = [item for item in judged if item.judgement.verdict not in undecided]
            return others + self._decide(failures, session)

    def is_queued(self, key: TaskInstanceKey, ti_id: str) -> bool:
        """
        Whether a task instance still waits for its launch: no worker runs it.

        :raises sqlalchemy.exc.SQLAlchemyError: if that cannot be found out
        """
        with create_session(scoped=False) as session:
            row = task_instances.read_rows({ti_id}, session=session).get(ti_id)
        return self._still_queued(row) and row.key == key and not self._queued_again(key)

    def _judge(
        self,
        ended: Ended,
        row: TaskInstanceRow | None,
        restarting: Mapping[TaskInstanceKey, int | None],
    ) -> Settled:
        launch = ended.launch
        judgement = judge(
            ended.failure,
            row,
            try_number=launch.key.try_number,
            job_id=self._job_id,
            queued_again=self._queued_again(launch.key),
            runs_here=row is None or launch.runs(row.hostname),
            adopted_from=launch.adopted_from,
            restarting=launch.key in restarting,
            restarts_by=restarting.get(launch.key),
        )
        return Settled(launch, ended.failure, judgement)

    def _decide(self, failures: list[Settled], session: Session) -> list[Settled]:
        locked = task_instances.lock_rows({item.launch.ti_id for item in failures}, session=session)
        # The row was read without a lock before: only what holds under the lock counts.
        held = [item for item in failures if self._still_queued(locked.get(item.launch.ti_id))]
        histories = ledger.read_histories(
            {item.launch.key: item.launch.ti_id for item in held}, session=session
        )
        profiles = read_profiles({item.launch.ti_id for item in held}, session=session)
        decided = [
            self._record(item, histories[item.launch.key], profiles[item.launch.ti_id], session)
            for item in held
            # Where the database has no row locks a task instance may be cleared between two statements. It is
            # judged again in the next turn.
            if item.launch.ti_id in profiles
        ]
        self._write_rows(decided, session)
        return decided

    def _still_queued(self, row: TaskInstanceRow | None) -> TypeGuard[TaskInstanceRow]:
        return row is not None and row.state == "queued" and row.queued_by_job_id == self._job_id

    def _record(
        self, item: Settled, history: LaunchHistory, profile: TaskProfile, session: Session
    ) -> Settled:
        launch = item.launch
        failure = self._explain(item.failure or find_silent_exit(_last_seen(launch)), launch)
        uid = launch.ref.uid if launch.ref else launch.launch_id
        entry = history.of_worker(uid)
        if entry and is_outdated(entry, launch, failure.facts):
            history.forget(entry)
            entry = None
        if entry is None:
            classified = classify(failure, launch_number=launch.number)
            decision = (
                _EXPIRED
                if failure.reason == TOKEN_EXPIRED
                else self._ask_policies(failure, classified, history, profile)
            )
            relaunches = decision.action is Action.RELAUNCH
            entry = LedgerEntry(
                ti_id=launch.ti_id,
                worker_uid=uid,
                worker_name=launch.name,
                launch=launch.number,
                reason=failure.reason,
                context=classified.context,
                decision=decision,
                due=self._now() + timedelta(seconds=decision.delay) if relaunches else None,
            )
            ledger.record(launch.key, entry, session=session)
        return Settled(launch, failure, item.judgement, entry)

    def _explain(self, failure: PodFailure, launch: Launch) -> PodFailure:
        """Return the failure with what is known beside its pod: that its worker had come too late."""
        return (find_expired_token(failure) if self._has_expired(launch) else None) or failure

    def _ask_policies(
        self, failure: PodFailure, classified: Classified, history: LaunchHistory, profile: TaskProfile
    ) -> Decision:
        policies = self._policies()
        selection = select(policies, profile)
        for name in selection.unknown:
            log.warning(
                "%s.%s asks for the retry policy %r, which %s does not have",
                profile.dag_id,
                profile.task_id,
                name,
                policies.origin,
            )
        evidence = make_evidence(failure, classified, Phase.LAUNCH)
        decision = decide(evidence, selection, policies, history.decisions, random.random)
        return paced(decision, history.relaunches, random.random)

    def _write_rows(self, decided: Iterable[Settled], session: Session) -> None:
        by_action: dict[Action, set[str]] = {action: set() for action in Action}
        for item in decided:
            if item.entry:
                by_action[item.entry.decision.action].add(item.launch.ti_id)
        task_instances.refresh_queued(by_action[Action.RELAUNCH], at=self._now(), session=session)
        task_instances.forbid_retries(by_action[Action.FAIL], session=session)


def is_outdated(entry: LedgerEntry, launch: Launch, facts: PodFacts) -> bool:
    """
    Whether a pod has started since it was decided to give it up, so that its end is another failure.

    Its row is about the one launch that it still is: the new row takes its place, and nothing is counted
    twice. If this scheduler has not followed it again itself, the pod has to show that it has started, and a
    pod that is being deleted may be so because of that decision.
    """
    was_pending = entry.context.metadata.get("phase") == "Pending"
    has_started = facts.has_started and not facts.deletion_timestamp
    return was_pending and (launch.has_survived or has_started)


def _last_seen(launch: Launch) -> PodFacts:
    if launch.facts is None:
        raise AssertionError("a pod that has succeeded was seen")
    return launch.facts
