# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Decides about workers that have failed, and writes the decisions into the ledger.

A launch has failed if its task never began. A running task that has lost its worker runs again in the same
try, within its infrastructure budget and under a new UUID. The ledger's row, which counts the failure, and
the new UUID, which keeps the lost worker from reporting about the next run, are one transaction.

.. seealso:: https://cwiki.apache.org/confluence/display/AIRFLOW/AIP-97+Infrastructure-Aware+Task+Execution+and+Context+Propagation
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from attrs import define
from sqlalchemy.orm import Session
from uuid6 import uuid7

from airflow.providers.cncf.kubernetes_resilience.executors.creation.outages import Outages
from airflow.providers.cncf.kubernetes_resilience.executors.creation.suspect_nodes import SuspectNodes
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Build,
    Decided,
    Fail,
    Settled,
    Step,
    runs_in_its_pod,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import has_expired_token
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Place, locate
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import EarlierFailures, Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow, awaits_launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import read_profiles
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.beginnings import IMPORT_FAILED
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import Classified, classify
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.dependencies import find_dependency
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    TOKEN_EXPIRED,
    PodFailure,
    find_expired_token,
    find_obstacle,
    find_silent_exit,
    find_unreported_end,
)
from airflow_resilience import ledger
from airflow_resilience.decision import NO_POLICY, Action, AvoidNode, Decision
from airflow_resilience.ledger_entries import Histories, LaunchHistory, LedgerEntry
from airflow_resilience.outages import Dependency
from airflow_resilience.propagation import audit
from airflow_resilience.propagation.database import write_failures
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.selection import TaskProfile

REPORT_GRACE = 2.0
"""Seconds after the end of its pod in which a worker's report may still be under way. It wins then."""

_EXPIRED = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="token-expired",
    explanation="the worker's token had expired before it could start, which counts against no limit",
)
"""
The decision if a worker's token had expired: no policy and no limit makes that cost a retry.

A pod that is still Pending after an outage is replaced without a ledger entry, since it has not failed. The
ledger has this failure, and the successor of a scheduler that is killed now does not count it.
"""

_AWAY = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="outage",
    explanation="is away for everybody, which counts against no limit; the next launch is held meanwhile",
    avoid_node=AvoidNode.PREFER,
)
"""The decision about a launch that has failed for a known outage, which may be one broken node's."""

_NO_BUDGET = Decision(
    action=Action.COUNT,
    policy=NO_POLICY,
    rule="no-infrastructure-budget",
    explanation="the task has no infrastructure budget",
)
"""Without a budget no rule is asked. The ledger says all the same why the task has failed."""

_FREE_EXPIRIES = 2
"""Number of relaunches of a try for an expired token. A pod that takes longer than its token is valid takes
as long again, and a worker may fail by itself that late."""


_TAKEN_BACK = Decision(
    action=Action.RELAUNCH,
    policy=NO_POLICY,
    rule="task-queued-timeout",
    explanation="Airflow takes the task instance back, which was queued for longer than [scheduler]"
    " task_queued_timeout: it queues it again, [scheduler] num_stuck_in_queued_retries times, or fails it",
)


class _New(NamedTuple):
    """A failure about which nothing was decided."""

    launch: Launch
    phase: Phase
    failure: PodFailure
    classified: Classified
    history: LaunchHistory
    """Earlier failures of the try in the same phase."""
    profile: TaskProfile
    dependency: Dependency | None
    """Dependency of several launches that was not available to this one."""


@define(kw_only=True, eq=False, repr=False, slots=False)
class Recorder:
    """Decides about failures, and writes the decisions and their reports down."""

    _policies: RetryPolicies
    """The retry policies in force, with the infrastructure budget."""
    _token_validity: float
    """Of a worker's token, seconds."""
    _outages: Outages
    """Learn for which dependencies launches have failed, and say which dependencies are away."""
    _suspect_nodes: SuspectNodes
    """Learn on which nodes, and say which are suspect."""
    _job_id: int | None
    _clock: Callable[[], float]

    def record(self, failed: Sequence[tuple[Launch, Phase]], session: Session) -> list[Settled]:
        """
        Decide about failures that can be decided now; the others wait for a later turn.

        :param failed: launches whose worker has failed, each with how far its task had come
        """
        locked = task_instances.lock_rows({launch.ti_id for launch, _ in failed}, session=session)
        # The rows were first read without a lock. Only what they say under the lock counts.
        held = [item for item in failed if self._stands(*item, locked.get(item[0].ti_id))]
        ti_ids = {launch.key: launch.ti_id for launch, _ in held}
        histories = ledger.read_histories(ti_ids, session=session)
        profiles = read_profiles(ti_ids.values(), session=session)
        settled: list[Settled] = []
        new: list[_New] = []
        for launch, phase in held:
            profile = profiles.get(launch.ti_id)
            # Without row locks a task instance may be cleared between two statements. The launch is then
            # assessed again in the next turn.
            if profile is None or self._awaits_report(launch, phase, profile):
                continue
            found = self._look_up(launch, phase, histories[launch.key], profile)
            if isinstance(found, Settled):
                settled.append(found)
            else:
                new.append(found)
        # Outages are learnt from all launches of the batch before any decision about one of them.
        for failure in new:
            if failure.phase is Phase.LAUNCH:
                self._outages.failed(failure.launch, failure.dependency, failure.classified.context)
                self._suspect_nodes.failed(
                    failure.launch, failure.failure.facts.node, failure.classified.cause
                )
        made = [(failure, self._make_entry(failure)) for failure in new]
        self._write([(failure.launch, entry) for failure, entry in made], session)
        settled += [_settled(failure.launch, entry, failure.failure) for failure, entry in made]
        queued = {done.launch.ti_id for done in settled if done.entry and done.entry.phase is Phase.LAUNCH}
        task_instances.refresh_queued(queued, session=session)
        return settled

    def read_decided(self, gone: Sequence[Launch], session: Session) -> list[Settled]:
        """
        Return the decisions about launches whose task instance has another UUID since.

        The commit had no answer, or what follows it has failed.
        """
        rows = task_instances.read_by_key({launch.key for launch in gone}, session=session)
        histories = ledger.read_histories({row.key: row.ti_id for row in rows.values()}, session=session)
        return [
            _settled(launch, entry, _failure_of(launch))
            for launch in gone
            if (found := histories.get(launch.key))
            if (entry := _loss_of(launch, found.whole_try)) and entry.next_ti_id
        ]

    def read_earlier(self, due: Collection[Launch], session: Session) -> dict[Launch, EarlierFailures]:
        """
        Return the failures before launches that are due, and record the failures that workers have stored.

        Usually the latter are recorded when the pods have ended, but a pod may end late. The start of the
        next try removes them.
        """
        if not due:
            return {}
        before = [launch.key._replace(try_number=launch.key.try_number - 1) for launch in due]
        failed = audit.read_previous_failures([launch.key for launch in due], session=session)
        former = task_instances.read_former_ids([key for key in before if key.try_number], session=session)
        audit.record_reported(former, session=session)
        histories = ledger.read_histories({launch.key: launch.ti_id for launch in due}, session=session)
        return {launch: EarlierFailures(histories[launch.key], failed.get(launch.key)) for launch in due}

    def record_due(self, settled: Collection[Settled], session: Session) -> list[Settled]:
        """
        Record what becomes of launches that are due; return what can be acted on now.

        A relaunch has all of the time that Airflow gives a pod to start. A row is judged again if its lock
        shows another state, or if another transaction has locked the row of a failure or a hand-back.
        """
        launches = {item.launch.ti_id: item.launch for item in settled}
        failed = {
            item.launch.ti_id: item.outcome.entry
            for item in settled
            if isinstance(item.outcome, Fail) and item.outcome.entry
        }
        handed_back = {item.launch.ti_id for item in settled if item.outcome is Step.HAND_BACK}
        built = [item.launch for item in settled if isinstance(item.outcome, Build)]
        relaunched = {launch.ti_id for launch in built if launch.is_relaunch}
        locked = task_instances.lock_rows({*failed, *handed_back, *relaunched}, session=session)
        own = {
            ti_id
            for ti_id, row in locked.items()
            if awaits_launch(row, launches[ti_id].key, job_id=self._job_id)
        }
        task_instances.refresh_queued(own & relaunched, session=session)
        task_instances.reschedule(own & handed_back, session=session)
        undelivered = {launches[ti_id].key: entry for ti_id, entry in failed.items() if ti_id in own}
        task_instances.write_failed(undelivered, TaskInstanceState.QUEUED, session=session)
        is_left = ({*failed, *handed_back} | (relaunched & locked.keys())) - own
        return [item for item in settled if item.launch.ti_id not in is_left]

    def record_revoked(self, launch: Launch) -> None:
        """
        Record the obstacle to the start of a launch that Airflow takes back, and commit.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take it
        """
        failure = find_obstacle(launch.facts) if launch.facts else None
        if failure is None:
            return
        classified = classify(failure, launch_number=launch.number)
        entry = _new_entry(launch, failure, classified, _TAKEN_BACK)
        with create_session(scoped=False) as session:
            if task_instances.lock_rows({launch.ti_id}, session=session):
                ledger.record([(launch.key, entry)], session=session)
                write_failures({launch.key: (launch.ti_id, entry.context)}, session=session)

    def _awaits_report(self, launch: Launch, phase: Phase, profile: TaskProfile) -> bool:
        """Return whether a worker may still report how its task has ended."""
        if phase is Phase.LAUNCH or self._clock() - launch.ended_at >= REPORT_GRACE:
            return False
        return launch.failure is None or bool(self._policies.infrastructure_budget(profile))

    def _stands(self, launch: Launch, phase: Phase, row: TaskInstanceRow | None) -> bool:
        """Return whether the task is still in its phase, and this scheduler's, under the row's lock."""
        if phase is Phase.LAUNCH:
            return awaits_launch(row, launch.key, job_id=self._job_id)
        return runs_in_its_pod(launch, row, job_id=self._job_id)

    def _look_up(
        self, launch: Launch, phase: Phase, histories: Histories, profile: TaskProfile
    ) -> Settled | _New:
        """Return the decision about a failure in the ledger; without one, the failure to decide about."""
        if phase is Phase.LAUNCH:
            history = histories.launches
            failure = self._explain(launch.failure or find_silent_exit(launch.last_seen), launch, history)
            entry = history.of_worker(launch.worker_uid)
            if entry and launch.has_outlived(entry, failure.facts):
                history.forget(entry)
                entry = None
        else:
            history = histories.whole_try
            failure = _failure_of(launch)
            entry = _loss_of(launch, history)
        if entry:
            return _settled(launch, entry, failure)
        # Airflow may have learned of the start of a worker that has failed as a launch before.
        before = history.of_worker(launch.worker_uid)
        never_began = before is not None and _had_ended_before_its_start(launch, before, failure)
        classified = classify(
            failure,
            launch_number=launch.number,
            infrastructure_attempt=history.relaunches + 1 if phase is Phase.EXECUTION else None,
            phase=Phase.LAUNCH if never_began else phase,
        )
        dependency = find_dependency(failure, classified.cause) if phase is Phase.LAUNCH else None
        return _New(launch, phase, failure, classified, history, profile, dependency)

    def _explain(self, failure: PodFailure, launch: Launch, history: LaunchHistory) -> PodFailure:
        """Return the failure; if the worker's token had expired, one that says so."""
        before = [entry for entry in history.entries if entry.reason == TOKEN_EXPIRED]
        has_expired = has_expired_token(launch, self._clock(), self._token_validity)
        if len(before) >= _FREE_EXPIRIES or not has_expired or classify(failure).cause.name == IMPORT_FAILED:
            return failure
        return find_expired_token(failure) or failure

    def _make_entry(self, item: _New) -> LedgerEntry:
        decision = self._decide(item)
        known: dict[str, Any] = {"next_ti_id": str(uuid7()) if decision.action is Action.RELAUNCH else None}
        if item.phase is Phase.LAUNCH:
            known = {
                "dependency": item.dependency,
                "away_since": self._outages.away_since(item.dependency),
                "node_is_suspect": self._suspect_nodes.is_suspect(item.failure.facts.node),
            }
        return _new_entry(item.launch, item.failure, item.classified, decision, phase=item.phase, **known)

    def _decide(self, item: _New) -> Decision:
        if item.phase is Phase.LAUNCH:
            if item.failure.reason == TOKEN_EXPIRED:
                return _EXPIRED
            if self._outages.is_free(item.launch, item.dependency):
                return replace(_AWAY, explanation=f"{item.dependency} {_AWAY.explanation}")
        elif not self._policies.infrastructure_budget(item.profile):
            return _NO_BUDGET
        return self._policies.decide(item.failure, item.classified, item.phase, item.history, item.profile)

    def _write(self, made: Sequence[tuple[Launch, LedgerEntry]], session: Session) -> None:
        """Write down what was decided; all of these rows are locked."""
        ledger.record([(launch.key, entry) for launch, entry in made], session=session)
        losses = [(launch, entry) for launch, entry in made if entry.phase is Phase.EXECUTION]
        new_ids = {entry.ti_id: entry.next_ti_id for _, entry in losses if entry.next_ti_id}
        if new_ids:
            task_instances.run_again(new_ids, session=session)
        # The context of a launch is written when no pod of it can start any more.
        failed = {launch.key: entry for launch, entry in losses if not entry.next_ti_id}
        task_instances.write_failed(failed, TaskInstanceState.RUNNING, session=session)


def _new_entry(
    launch: Launch, failure: PodFailure, classified: Classified, decision: Decision, **more: Any
) -> LedgerEntry:
    """Make the ledger's entry about a launch that has failed; without a phase, before its task began."""
    relaunches = decision.action is Action.RELAUNCH
    return LedgerEntry(
        ti_id=launch.ti_id,
        worker_uid=launch.worker_uid,
        worker_name=launch.name,
        launch=launch.number,
        reason=failure.reason,
        context=classified.context,
        decision=decision,
        due=datetime.now(UTC) + timedelta(seconds=decision.delay) if relaunches else None,
        **more,
    )


def _settled(launch: Launch, entry: LedgerEntry, failure: PodFailure) -> Settled:
    return Settled(launch, Decided(entry, failure, by_rule=entry.decision != _NO_BUDGET))


def _loss_of(launch: Launch, whole_try: LaunchHistory) -> LedgerEntry | None:
    """Return the loss of a launch that was decided before. Of its worker perhaps only the host is known."""
    for entry in whole_try.entries:
        if entry.phase is not Phase.EXECUTION or entry.ti_id != launch.ti_id:
            continue
        if entry.worker_uid == launch.worker_uid:
            return entry
        if launch.ref is None and locate(launch.name, name=entry.worker_name) is Place.HERE:
            return entry
    return None


def _had_ended_before_its_start(launch: Launch, entry: LedgerEntry, failure: PodFailure) -> bool:
    """Return whether a worker had ended while its task was queued, and so has run no code of the task."""
    has_ended = failure.facts.is_terminal or failure.facts.has_lost_worker
    return has_ended and not launch.has_outlived(entry, failure.facts)


def _failure_of(launch: Launch) -> PodFailure:
    return launch.failure or find_unreported_end(launch.last_seen)
