# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Reports as JSON: the values of the API, and of the command line's ``--output json``.

Times have a time zone. Texts are unchanged texts of the platform or of programs, and no HTML.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from airflow.providers.cncf.kubernetes_resilience.reporting.failures import FailureOutcome, Outcome
from airflow.providers.cncf.kubernetes_resilience.reporting.words import (
    cause_of,
    end_in_words,
    in_words,
    message_of,
)
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import Action, AvoidNode, Decision
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.ledger_queries import TaskFailure
from airflow_resilience.retry_policy.evidence import Phase


class Budget(BaseModel):
    """The used part of a limit."""

    used: int
    allowed: int | None = Field(description="null: no limit, or it is not known")


class DecisionView(BaseModel):
    """The decision about a failure."""

    action: Action
    policy: str
    rule: str
    explanation: str = Field(description="the sentence that the scheduler's log has")
    delay: float = Field(description="seconds before the next launch")
    avoid_node: AvoidNode
    mutation: dict[str, Any] | None = Field(
        description="what the next launch has that the one before had not, as in mutate of a policy file"
    )
    budget: Budget | None = Field(description="relaunches of its try, as counted for the decision")
    ran_out: bool = Field(description="whether a budget had nothing left for another launch")

    @classmethod
    def of(cls, decision: Decision) -> DecisionView:
        """Show a decision."""
        return cls.model_validate(decision.to_dict())


class FailureView(BaseModel):
    """A failed worker: its failure, the reason, and the decision."""

    phase: Phase = Field(description="launch: its task had not begun; execution: its task was running")
    launch: int = Field(description="which launch of its try it was, from 1")
    pod: str
    namespace: str | None
    uid: str
    node: str | None
    cause: str = Field(description="a row of the table of causes")
    cause_in_words: str | None
    category: StateChangeCategory
    reason: StateChangeReason
    source: ContextSource
    platform_reason: str = Field(description="the word of Kubernetes")
    container: str | None
    container_type: str | None
    exit_code: int | None
    signal: str | None
    message: str | None = Field(description="the last lines of the container, or what the platform says")
    decision: DecisionView
    due: datetime | None = Field(description="when the next launch could be made")
    task_instance_id: str
    next_task_instance_id: str | None

    @classmethod
    def of(cls, entry: LedgerEntry) -> FailureView:
        """Show an entry of the ledger."""
        context, known = entry.context, entry.context.metadata
        return cls(
            phase=entry.phase,
            launch=entry.launch,
            pod=entry.worker_name,
            namespace=_text(known.get("namespace")),
            uid=entry.worker_uid,
            node=_text(known.get("node")),
            cause=cause_of(entry),
            cause_in_words=in_words(cause_of(entry)),
            category=context.category,
            reason=context.reason,
            source=context.source,
            platform_reason=entry.reason,
            container=_text(known.get("container")),
            container_type=_text(known.get("container_type")),
            exit_code=_number(known.get("exit_code")),
            signal=_text(known.get("signal")),
            message=message_of(context),
            decision=DecisionView.of(entry.decision),
            due=entry.due,
            task_instance_id=entry.ti_id,
            next_task_instance_id=entry.next_ti_id,
        )


class LaunchEnd(StrEnum):
    """Ends of a launch, and states before an end."""

    FAILED = "failed"
    """Its worker has failed, and the ledger says why."""
    REPORTED = "reported"
    """Its worker has reported the end of its task, or a deferral."""
    RUNNING = "running"
    WAITING = "waiting"
    """Its worker has not started."""


class LaunchView(BaseModel):
    """A launch of a try."""

    number: int = Field(description="from 1")
    end: LaunchEnd
    state: str | None = Field(
        description="of the task instance, that the launch has led to or has now; null: it has failed"
    )
    host: str | None = Field(
        description="its pod, or what its worker takes for the name of its host; null: neither is known"
    )
    started_at: datetime | None = Field(description="when its task began; Airflow 3.1 knows of the last only")
    ended_at: datetime | None = Field(description="when its end was settled, or reported")
    due: datetime | None = Field(description="when a launch that waits may be made")
    held_for: str | None = Field(
        description="what a launch that waits is held back for, since it was away: registry/HOST, for example"
    )
    held_since: datetime | None = Field(description="when that was written down")
    failure: FailureView | None


class EndView(BaseModel):
    """The reason of a task's failure without a lost pod."""

    at: datetime | None = Field(description="when it was written down")
    category: StateChangeCategory
    reason: StateChangeReason
    source: ContextSource
    in_words: str
    exception: str | None = Field(description="type of the exception that ended the task")
    message: str | None

    @classmethod
    def of(cls, at: datetime | None, context: ExecutionContext) -> EndView:
        """Show the reason of a failure."""
        known = context.metadata
        return cls(
            at=at,
            category=context.category,
            reason=context.reason,
            source=context.source,
            in_words=end_in_words(context),
            exception=_text(known.get("exception")),
            message=_text(known.get("message")),
        )


class TryView(BaseModel):
    """A try of a task instance."""

    number: int
    state: str | None
    launches: list[LaunchView] = Field(description="oldest first")
    ended_by: EndView | None = Field(description="what has ended it, if that was not the loss of a pod")
    relaunches: Budget | None = Field(
        description="after launches that failed before the task began; null: none has"
    )
    infrastructure: Budget | None = Field(
        description="after losses of the running worker; null: there was none"
    )
    retries: Budget | None = Field(description="of the task's own, before this try")


class TaskInstanceView(BaseModel):
    """The launches of a task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = Field(description="-1: the task is not mapped")
    state: str | None
    is_live: bool = Field(description="whether there may be more to report soon")
    is_cut: bool = Field(description="whether there are older events, which are left out")
    tries: list[TryView] = Field(description="newest first")


class FailureRow(BaseModel):
    """A failure, its place, and the outcome of its task."""

    at: datetime = Field(description="when it was settled")
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    try_state: str | None
    outcome: Outcome
    failure: FailureView

    @classmethod
    def of(cls, item: FailureOutcome) -> FailureRow:
        """Show a failure."""
        found = item.failure
        return cls(
            at=found.at,
            **found.key._asdict(),
            try_state=found.try_state,
            outcome=item.outcome,
            failure=FailureView.of(item.entry),
        )


class FailureRows(BaseModel):
    """Failures, a page of them."""

    total: int = Field(description="how many were chosen, of those that were read")
    is_cut: bool = Field(description="whether there are older ones in that time, which were not read")
    rows: list[FailureRow] = Field(description="newest first")


class TaskFailureRow(BaseModel):
    """A task that has failed, and did not lose its pod."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    end: EndView

    @classmethod
    def of(cls, failure: TaskFailure) -> TaskFailureRow:
        """Show a failure."""
        return cls(**failure.key._asdict(), end=EndView.of(failure.at, failure.context))


class TaskFailureRows(BaseModel):
    """Failures of tasks that did not lose their pod, a page of them."""

    total: int = Field(description="how many were chosen, of those that were read")
    is_cut: bool = Field(description="whether there are older ones in that time, which were not read")
    rows: list[TaskFailureRow] = Field(description="newest first")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
