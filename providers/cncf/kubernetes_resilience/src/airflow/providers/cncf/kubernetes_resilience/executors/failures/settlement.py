# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Settles launches that have ended: read the rows, assess, decide, write the ledger.

That is one transaction for many launches. Nothing is acted on here. What is returned has been committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple, assert_never

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.creation.outages import Outages
from airflow.providers.cncf.kubernetes_resilience.executors.creation.suspect_nodes import SuspectNodes
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
from airflow.providers.cncf.kubernetes_resilience.executors.failures.executions import Executions
from airflow.providers.cncf.kubernetes_resilience.executors.failures.expired_tokens import ExpiredTokens
from airflow.providers.cncf.kubernetes_resilience.executors.failures.outcome import (
    Decided,
    Settled,
    make_entry,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.profiles import read_profiles
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import Classified, classify
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.dependencies import find_dependency
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    TOKEN_EXPIRED,
    PodFailure,
    find_expired_token,
    find_obstacle,
    find_silent_exit,
)
from airflow_resilience import ledger
from airflow_resilience.decision import NO_POLICY, Action, Decision
from airflow_resilience.ledger import Histories
from airflow_resilience.outages import Dependency
from airflow_resilience.propagation import audit
from airflow_resilience.propagation.database import write_failures
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.selection import TaskProfile

_EXPIRED = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="token-expired",
    explanation="the worker's token had expired before it could start, which counts against no limit",
)
"""
The decision if a worker's token had expired: no policy and no limit makes that cost a retry.

A pod that is still Pending after an outage is replaced without a ledger entry, since it has not failed. This
failure is written down, so that the successor of a scheduler that is killed now does not count it.
"""

_TAKEN_BACK = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="task-queued-timeout",
    explanation="Airflow takes the task instance back, which was queued for longer than [scheduler]"
    " task_queued_timeout: it queues it again, and fails it the third time",
)

_AWAY = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="outage",
    explanation="what it needs is away for everybody, which counts against no limit; the next launch is held"
    " until that is back",
)
"""The decision about a launch that has failed for a known outage."""

_FREE_EXPIRIES = 2
"""How often a try is launched again for that. A pod that takes longer than its token is valid takes as long
again, and a worker may fail by itself that late."""


class _NewFailure(NamedTuple):
    """A failed launch about which nothing was decided."""

    launch: Launch
    failure: PodFailure
    classified: Classified
    histories: Histories
    profile: TaskProfile

    @property
    def dependency(self) -> Dependency | None:
        """What was not available to it, if that is something which others need too."""
        return find_dependency(self.failure, self.classified.cause)


class Settlement:
    """
    Settles ended launches.

    :param policies: the retry policies in force
    :param slots: tell whether the next phase of a task instance is queued
    :param executions: settles those whose task was running
    :param expired_tokens: tell whether the token of a launch has expired
    :param outages: are told what launches have failed for, and tell what is away
    :param suspect_nodes: are told on which nodes, and tell which are suspect
    :param job_id: this scheduler's job
    """

    def __init__(
        self,
        *,
        policies: RetryPolicies,
        slots: Slots,
        executions: Executions,
        expired_tokens: ExpiredTokens,
        outages: Outages,
        suspect_nodes: SuspectNodes,
        job_id: int | None,
    ) -> None:
        self._policies = policies
        self._slots = slots
        self._executions = executions
        self._expired_tokens = expired_tokens
        self._outages = outages
        self._suspect_nodes = suspect_nodes
        self._job_id = job_id

    def settle(self, ended: Sequence[Launch]) -> list[Settled]:
        """
        Settle what can be settled now; launches whose row somebody else has locked are left out.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer, or refuses one of them;
            nothing is settled then
        """
        # Not the thread's scoped session, which may be in the middle of the scheduler's own transaction.
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({launch.ti_id for launch in ended}, session=session)
            gone = {launch.key for launch in ended if launch.ti_id not in rows}
            restarting = task_instances.read_restarting(gone, session=session)
            cleared = [launch for launch in ended if launch.key in gone - restarting.keys()]
            settled = self._executions.read_decided(cleared, session)
            known = {item.launch for item in settled}
            failed, lost = [], []
            for launch in ended:
                if launch in known:
                    continue
                assessment = self._assess(launch, rows.get(launch.ti_id), restarting)
                match assessment:
                    case LaunchFailed():
                        failed.append(launch)
                    case ExecutionFailed():
                        lost.append(launch)
                    case Report() | Release() | Keep():
                        settled.append(Settled(launch, assessment))
                    case Postpone():
                        pass
                    case _:
                        assert_never(assessment)
            audit.record_reported(_ended_by_themselves(settled), session=session)
            settled = _record_cleared(settled, restarting, session)
            return settled + self._decide(failed, session) + self._executions.decide(lost, session)

    def is_queued(self, key: TaskInstanceKey, ti_id: str) -> bool:
        """
        Whether a task instance still waits for its launch: no worker runs it.

        :raises sqlalchemy.exc.SQLAlchemyError: if that cannot be found out
        """
        with create_session(scoped=False) as session:
            row = task_instances.read_rows({ti_id}, session=session).get(ti_id)
        return self._still_queued(key, row) and not self._slots.is_queued_again(key)

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

    def _assess(
        self, launch: Launch, row: TaskInstanceRow | None, restarting: Mapping[TaskInstanceKey, int | None]
    ) -> Assessment:
        return assess(
            launch.failure,
            row,
            try_number=launch.key.try_number,
            job_id=self._job_id,
            queued_again=self._slots.is_queued_again(launch.key),
            runs_here=row is None or launch.runs(row.hostname),
            adopted_from=launch.adopted_from,
            restarting=launch.key in restarting,
            restarts_by=restarting.get(launch.key),
        )

    def _decide(self, failed: list[Launch], session: Session) -> list[Settled]:
        locked = task_instances.lock_rows({launch.ti_id for launch in failed}, session=session)
        # The rows were first read without a lock. Only what they say under the lock counts.
        held = [launch for launch in failed if self._still_queued(launch.key, locked.get(launch.ti_id))]
        ti_ids = {launch.key: launch.ti_id for launch in held}
        histories = ledger.read_all_histories(ti_ids, session=session)
        profiles = read_profiles(ti_ids.values(), session=session)
        decided: list[tuple[Launch, Decided]] = []
        new: list[_NewFailure] = []
        for launch in held:
            # Without row locks a task instance may be cleared between two statements. The launch is then
            # assessed again in the next turn.
            if profile := profiles.get(launch.ti_id):
                found = self._look_up(launch, histories[launch.key], profile)
                if isinstance(found, Decided):
                    decided.append((launch, found))
                else:
                    new.append(found)
        # What many launches say together is known before any of them is decided about.
        for item in new:
            self._outages.failed(item.launch, item.dependency, item.classified.context)
            self._suspect_nodes.failed(item.launch, item.failure.facts.node, item.classified.cause)
        made = [(item.launch, self._decide_one(item)) for item in new]
        ledger.record([(launch.key, outcome.entry) for launch, outcome in made], session=session)
        decided += made
        waiting = {launch.ti_id for launch, _ in decided}
        task_instances.refresh_queued(waiting, at=datetime.now(UTC), session=session)
        return [Settled(launch, outcome) for launch, outcome in decided]

    def _still_queued(self, key: TaskInstanceKey, row: TaskInstanceRow | None) -> bool:
        return is_pre_execution_failure(row, try_number=key.try_number, job_id=self._job_id)

    def _look_up(self, launch: Launch, histories: Histories, profile: TaskProfile) -> Decided | _NewFailure:
        """Return what the ledger says was decided about a launch, or what there is to decide."""
        failure = self._explain(launch.failure or find_silent_exit(launch.last_seen), launch, histories)
        entry = histories.launches.of_worker(launch.worker_uid)
        if entry and launch.has_outlived(entry, failure.facts):
            histories.launches.forget(entry)
            entry = None
        if entry:
            return Decided(entry, failure)
        return _NewFailure(
            launch, failure, classify(failure, launch_number=launch.number), histories, profile
        )

    def _decide_one(self, item: _NewFailure) -> Decided:
        launch, failure, classified, histories, profile = item
        if failure.reason == TOKEN_EXPIRED:
            decision = _EXPIRED
        elif self._outages.is_free(launch, item.dependency):
            decision = replace(_AWAY, explanation=f"{item.dependency}: {_AWAY.explanation}")
        else:
            decision = self._policies.decide(failure, classified, Phase.LAUNCH, histories.launches, profile)
        entry = replace(
            make_entry(launch, failure, classified, decision),
            dependency=item.dependency,
            away_since=self._outages.away_since(item.dependency),
            node_is_suspect=self._suspect_nodes.is_suspect(failure.facts.node),
        )
        return Decided(entry, failure)

    def _explain(self, failure: PodFailure, launch: Launch, histories: Histories) -> PodFailure:
        """Return the failure; if the worker's token had expired, one that says so."""
        before = [entry for entry in histories.launches.entries if entry.reason == TOKEN_EXPIRED]
        if len(before) >= _FREE_EXPIRIES or not self._expired_tokens.has_expired(launch):
            return failure
        return find_expired_token(failure) or failure


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
