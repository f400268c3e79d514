# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Where tasks are, as far as the metadata database and the API server can tell. Nothing is read here.

The scheduler knows more: whether it has asked for a pod that is not there yet, for example. Rows and pods are
read one after the other, so that they may be a moment apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.cli.standing import State, examine
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import AdoptionPlan, plan_adoption
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    is_host,
    task_key,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.orphan import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import cut
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.decision import Action
from airflow_resilience.ledger import HeldLaunch, LaunchHistory
from airflow_resilience.retry_policy.durations import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTask:
    """A task instance that is queued, running or restarting, as the metadata database has it."""

    row: TaskInstanceRow
    queued_at: datetime | None = None
    started_at: datetime | None = None
    former_id: str | None = None
    """The UUID that its worker knows, if it was cleared while it ran and waits for the end of that worker."""
    history: LaunchHistory = field(default_factory=LaunchHistory)
    """Its failed launches, if it is queued."""
    held: HeldLaunch | None = None
    """Why its launch was held back, if it is queued and was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedLaunch:
    """A launch of a task instance, where it is, and what it waits for."""

    row: TaskInstanceRow
    state: LaunchState
    number: int | None
    """Which launch of its try it is, from 1; None if that is not known."""
    namespace: str | None = None
    pod: str | None = None
    """Name of its pod; None if there is none."""
    node: str | None = None
    since: datetime | None = None
    """Since when it is in that state, as far as is known."""
    waits_for: str | None = None
    """In words; None if it waits for nothing but the end of its task."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        key = self.row.key
        return {
            "dag_id": key.dag_id,
            "run_id": key.run_id,
            "task_id": key.task_id,
            "map_index": key.map_index,
            "try_number": key.try_number,
            "task_instance_id": self.row.ti_id,
            "task_state": self.row.state,
            "scheduler_job_id": self.row.queued_by_job_id,
            "state": self.state,
            "launch": self.number,
            "namespace": self.namespace,
            "pod": self.pod,
            "node": self.node,
            "since": self.since,
            "waits_for": self.waits_for,
        }

    def to_row(self) -> dict[str, Any]:
        """Return the columns for people."""
        key = self.row.key
        return {
            "dag": key.dag_id,
            "run": key.run_id,
            "task": key.task_id,
            "map index": None if key.map_index == -1 else key.map_index,
            "try": key.try_number,
            "task is": self.row.state,
            "scheduler job": self.row.queued_by_job_id,
            "launch": self.number,
            "launch is": self.state.value,
            "pod": self.pod,
            "node": self.node,
            "since": self.since and self.since.isoformat(sep=" ", timespec="seconds"),
            "waits for": self.waits_for,
        }


def locate_launches(
    tasks: Sequence[HeldTask], pods: Sequence[PodFacts], *, now: datetime
) -> list[LocatedLaunch]:
    """
    Say where each task is: one launch, and one more for each superseded pod that may still run or start.

    Which pod is the current launch is decided as in an adoption, when the executor knows no more than this.

    :param pods: with which no executor is done; pods of other task instances are left out
    :param now: with a time zone
    """
    plan = plan_adoption({task.row.key: _as_orphan(task) for task in tasks}, pods)
    superseded = {pod.ref.uid for _, pod in plan.superseded}
    pods_of = _by_task_instance(pods)
    located: list[LocatedLaunch] = []
    for task in sorted(tasks, key=lambda task: task.row.key):
        current = [
            pod
            for pod in _candidates(plan, task.row.key)
            if pod.ref.uid not in superseded and not _is_given_up(task, pod)
        ]
        others = [pod for pod in pods_of.get(_task_instance(task.row.key), ()) if pod not in current]
        departing = [pod for pod in others if not pod.is_terminal]
        located += [_in_pod(task, pod, now) for pod in current] or [_without_pod(task, departing, now)]
        located += [_departing(task, pod, now) for pod in departing]
    return located


def _as_orphan(task: HeldTask) -> Orphan:
    row = task.row
    return Orphan(
        row.key, row.ti_id, row.state, row.hostname, row.queued_by_job_id or 0, task.former_id
    )  # no scheduler's job has the id 0


def _candidates(plan: AdoptionPlan, key: TaskInstanceKey) -> Sequence[PodFacts]:
    current = plan.current.get(key)
    return plan.shared.get(key) or ([current] if current else [])


def _by_task_instance(pods: Sequence[PodFacts]) -> Mapping[tuple[Any, ...], list[PodFacts]]:
    found: dict[tuple[Any, ...], list[PodFacts]] = {}
    for pod in pods:
        if key := task_key(pod.annotations):
            found.setdefault(_task_instance(key), []).append(pod)
    return found


def _task_instance(key: TaskInstanceKey) -> tuple[Any, ...]:
    # Whatever its try: the pod of an earlier one may still depart.
    return (key.dag_id, key.task_id, key.run_id, key.map_index)


def _is_given_up(task: HeldTask, pod: PodFacts) -> bool:
    entry = task.history.of_worker(pod.ref.uid)
    return entry is not None and not Launch(task.row.key, task.row.ti_id).has_outlived(entry, pod)


def _in_pod(task: HeldTask, pod: PodFacts, now: datetime) -> LocatedLaunch:
    is_queued = task.row.state == TaskInstanceState.QUEUED
    standing = examine(pod, given_up_reasons=(), still_queued=is_queued)
    since: datetime | None
    waits_for: str | None
    if standing.state in (State.FAILED, State.SUCCEEDED):
        state, since = LaunchState.ENDED, pod.worker.finished_at if pod.worker else None
        waits_for = f"its end to be settled: {standing.failure.reason if standing.failure else pod.phase}"
    elif pod.may_start:
        state, since = LaunchState.PENDING, pod.created
        waits_for = f"pod is {pod.phase}: {_obstacle(standing.failure)}" if standing.failure else "pod is new"
    else:
        state, since = LaunchState.STARTED, task.started_at or pod.created
        waits_for = _WORKER_IS_TO.get(task.row.state or "")
    if pod.deletion_timestamp and state is not LaunchState.ENDED:
        waits_for = _deletion(pod.deletion_timestamp, now)
    return _launch(task, pod, state, since, waits_for)


_WORKER_IS_TO: Mapping[str, str] = {
    TaskInstanceState.QUEUED: "its worker to report that the task has started",
    TaskInstanceState.RESTARTING: "its worker to end: the task was cleared",
}


def _without_pod(task: HeldTask, departing: Sequence[PodFacts], now: datetime) -> LocatedLaunch:
    row, last = task.row, task.history.last
    if row.state != TaskInstanceState.QUEUED:
        lost = "its end to be reported, or its missing heartbeat to be noticed: no pod of it is found"
        return LocatedLaunch(row=row, state=LaunchState.ENDED, number=None, waits_for=lost)
    if last and last.decision.action is not Action.RELAUNCH:
        return LocatedLaunch(
            row=row,
            state=LaunchState.ENDED,
            number=last.launch,
            pod=last.worker_name,
            node=last.context.metadata.get("node"),
            waits_for=f"its failure to be reported: {last.decision.explanation}",
        )
    state, waits_for = LaunchState.CREATING, "no pod yet"
    if last and last.due and last.due > now:
        state = LaunchState.WAITING
        waits_for = f"relaunch due in {_duration(last.due - now)}: {last.decision.explanation}"
    elif held := _held(task):
        state, waits_for = LaunchState.HELD, f"{held.dependency}, away since {_minute(held.away_since)}"
    elif before := next((pod for pod in departing if _holds_up(row, pod)), None):
        state, waits_for = LaunchState.WAITING, f"pod {before.ref} to go"
    number = last.launch + 1 if last else 1
    return LocatedLaunch(row=row, state=state, number=number, since=task.queued_at, waits_for=waits_for)


def _held(task: HeldTask) -> HeldLaunch | None:
    """Return why a launch without a pod is held back: what its last failure says counts."""
    last = task.history.last
    if last is None or last.dependency is None or last.away_since is None:
        return None if last else task.held
    return HeldLaunch(ti_id=last.ti_id, dependency=last.dependency, away_since=last.away_since)


def _minute(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%H:%M UTC")


def _holds_up(row: TaskInstanceRow, pod: PodFacts) -> bool:
    # Not the pod of an earlier phase: its worker has reported, and it ends by itself.
    return task_key(pod.annotations) == row.key and not is_host(row.hostname, pod)


def _departing(task: HeldTask, pod: PodFacts, now: datetime) -> LocatedLaunch:
    since, waits_for = None, "its deletion, or its own end"
    if pod.deletion_timestamp:
        since = pod.deletion_timestamp - timedelta(seconds=pod.deletion_grace_seconds)
        waits_for = _deletion(pod.deletion_timestamp, now)
    return _launch(task, pod, LaunchState.DEPARTING, since, waits_for)


def _launch(
    task: HeldTask, pod: PodFacts, state: LaunchState, since: datetime | None, waits_for: str | None
) -> LocatedLaunch:
    return LocatedLaunch(
        row=task.row,
        state=state,
        number=pod.launch_number,
        namespace=pod.ref.namespace,
        pod=pod.ref.name,
        node=pod.node,
        since=since,
        waits_for=waits_for,
    )


def _obstacle(failure: PodFailure) -> str:
    condition, container = failure.condition, failure.container
    if container and not (container.reason or condition):
        return f"{container.type} container {container.name} is {container.state}"
    message = (condition or container or failure.facts).message
    return ": ".join(text for text in (failure.reason, cut(message)) if text)


def _deletion(grace_ends: datetime, now: datetime) -> str:
    left = grace_ends - now
    when = f"ends in {_duration(left)}" if left > timedelta() else f"ended {_duration(-left)} ago"
    return f"deletion asked for, grace period {when}"


def _duration(time: timedelta) -> str:
    return format_duration(math.ceil(time.total_seconds()))
