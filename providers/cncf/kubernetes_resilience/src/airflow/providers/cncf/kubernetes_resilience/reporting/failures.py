# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The failures of a period: their outcomes, their numbers, and their selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import State, TaskInstanceState
from pydantic import BaseModel, Field, computed_field

from airflow.providers.cncf.kubernetes_resilience.reporting.words import (
    cause_of,
    in_words,
    message_of,
    node_of,
)
from airflow_resilience.context import StateChangeCategory
from airflow_resilience.decision import Action
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.ledger_queries import Failures, RecordedFailure, RecordedOutage, TaskFailure
from airflow_resilience.retry_policy.evidence import Phase

DEFAULT_TIME: Final = timedelta(days=7)
"""Default of the period."""

LONGEST_TIME: Final = timedelta(days=92)
"""The longest period: a quarter."""

MOST_BUCKETS: Final = 48
"""Number of bars that are distinguishable beside each other."""

MOST_NAMES: Final = 50
"""Causes, nodes and Dags in a summary."""

_WIDTHS: Final = tuple(
    timedelta(minutes=minutes) for minutes in (1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 7 * 1440)
)
"""Widths of buckets. A bucket begins at a multiple of its width since the epoch, in UTC."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_UNFINISHED: Final = frozenset({*State.unfinished} - {None, TaskInstanceState.UP_FOR_RETRY})


class Outcome(StrEnum):
    """Outcomes of a task after a failure of its worker."""

    HEALED = "healed"
    """The task was launched again, and has succeeded in that try, or was skipped."""
    UNDER_WAY = "under-way"
    """The task was launched again, or will be, and goes on."""
    FAILED_AGAIN = "failed-again"
    """The task was launched again, and the next worker has failed too: see the next failure of the try."""
    FAILED_BY_ITSELF = "failed-by-itself"
    """The task was launched again, and then its own code has failed, or a user has marked the task."""
    CHARGED = "charged"
    """The task was not launched again, or did not start: the failure used a retry, or failed the task."""
    NOT_KNOWN = "not-known"
    """The task was launched again, and its task instance is gone, or was cleared meanwhile."""


@dataclass(frozen=True, slots=True)
class FailureOutcome:
    """A failure, and the outcome of its task."""

    failure: RecordedFailure
    outcome: Outcome

    @property
    def entry(self) -> LedgerEntry:
        """Entry of the ledger."""
        return self.failure.entry

    @property
    def is_charged(self) -> bool:
        """Whether the failure was at the task's cost."""
        return self.outcome is Outcome.CHARGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A choice of failures; None chooses all."""

    cause: str | None = None
    node: str | None = None
    phase: Phase | None = None
    outcome: Outcome | None = None
    relaunched: bool | None = None
    """Whether the decision was a relaunch."""
    ran_out: bool | None = None
    """Whether a budget was exhausted."""
    after: datetime | None = None
    """Inclusive."""
    before: datetime | None = None

    def chooses(self, item: FailureOutcome) -> bool:
        """Return whether the filter chooses a failure."""
        failure = item.failure
        wanted: tuple[tuple[object, object], ...] = (
            (self.cause, cause_of(item.entry)),
            (self.node, node_of(item.entry)),
            (self.phase, item.entry.phase),
            (self.outcome, item.outcome),
            (self.relaunched, not item.is_charged),
            (self.ran_out, item.entry.decision.ran_out),
        )
        if any(value is not None and value != actual for value, actual in wanted):
            return False
        is_early = self.after is not None and failure.at < self.after
        is_late = self.before is not None and failure.at >= self.before
        return not (is_early or is_late)


class Count(BaseModel):
    """The number of failures with a common cause, node or Dag."""

    name: str
    in_words: str | None = None
    relaunched: int
    charged: int = Field(description="those that were at the task's cost")
    suspected: datetime | None = Field(
        default=None,
        description="of a node: when launches last preferred others, since several had failed on it",
    )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def failures(self) -> int:
        """All failures."""
        return self.relaunched + self.charged


class Bucket(BaseModel):
    """The failures of a part of the period."""

    begins: datetime
    ends: datetime
    relaunched: int
    charged: int


class OutageView(BaseModel):
    """An outage for which launches are held now."""

    dependency: str = Field(description="registry/HOST, quota/NAMESPACE, admission/NAMESPACE or airflow-api")
    since: datetime
    held: int = Field(description="task instances whose launches are held")
    message: str | None = Field(description="what was said of the last launch that failed for it")

    @classmethod
    def of(cls, outage: RecordedOutage) -> OutageView:
        """Show an outage."""
        return cls(
            dependency=str(outage.dependency),
            since=outage.since,
            held=outage.held,
            message=message_of(outage.context),
        )


class Summary(BaseModel):
    """The failures of a period in numbers."""

    outages: list[OutageView] = Field(description="now, whatever time was asked for")
    since: datetime = Field(description="from when on is counted: later than asked for if is_cut")
    until: datetime
    is_cut: bool = Field(description="whether there are older failures in the time that was asked for")
    unreadable: int = Field(description="rows that another version has written, and that do not count")
    failures: int
    launches: int = Field(description="of workers whose task had not begun")
    executions: int = Field(description="of workers whose task was running")
    relaunched: int = Field(description="the answer was another launch, at no cost for the task")
    outcomes: dict[Outcome, int]
    ran_out: int = Field(description="failures for which a budget had nothing left")
    buckets: list[Bucket]
    causes: list[Count] = Field(description=f"most failures first, {MOST_NAMES} names at most")
    nodes: list[Count]
    dags: list[Count]
    others: dict[StateChangeCategory, int] = Field(
        description="failures of tasks that did not lose their pod; no other number counts them"
    )
    others_cut: bool = Field(description="whether there are older ones of these in the time asked for")


def outcomes_of(failures: Iterable[RecordedFailure]) -> list[FailureOutcome]:
    """
    Return the outcome of the task of each failure.

    :param failures: all failures of a period
    :return: newest first; a worker fails once: the last row about a worker counts
    """
    seen: set[TaskInstanceKey] = set()
    workers: set[tuple[TaskInstanceKey, str]] = set()
    outcomes = []
    # Row ids have the order of events; clocks of several machines differ.
    for failure in sorted(failures, key=lambda failure: failure.row_id, reverse=True):
        worker = failure.key, failure.entry.worker_uid
        if worker in workers:
            continue
        workers.add(worker)
        is_last = failure.key not in seen
        seen.add(failure.key)
        outcomes.append(FailureOutcome(failure, _outcome(failure, is_last=is_last)))
    return sorted(outcomes, key=lambda item: (item.failure.at, item.failure.row_id), reverse=True)


def summarise(
    found: Failures[RecordedFailure],
    others: Failures[TaskFailure],
    outages: Iterable[RecordedOutage],
    *,
    since: datetime,
    until: datetime,
) -> Summary:
    """
    Count failures.

    :param found: failures that were read of that period
    :param others: failures of tasks that did not lose their pod
    :param outages: present outages
    """
    chosen = outcomes_of(found.found)
    categories = Counter(failure.context.category for failure in others.found)
    if found.is_cut and found.found:
        since = max(since, min(failure.at for failure in found.found))
    outcomes = Counter(item.outcome for item in chosen)
    return Summary(
        outages=[OutageView.of(outage) for outage in outages],
        since=since,
        until=until,
        is_cut=found.is_cut,
        unreadable=found.unreadable + others.unreadable,
        failures=len(chosen),
        launches=sum(item.entry.phase is Phase.LAUNCH for item in chosen),
        executions=sum(item.entry.phase is Phase.EXECUTION for item in chosen),
        relaunched=sum(not item.is_charged for item in chosen),
        outcomes={outcome: outcomes[outcome] for outcome in Outcome},
        ran_out=sum(item.entry.decision.ran_out for item in chosen),
        buckets=_buckets(chosen, since, until),
        causes=[
            count.model_copy(update={"in_words": in_words(count.name)})
            for count in _counts(chosen, lambda item: cause_of(item.entry))
        ],
        nodes=_nodes(chosen),
        dags=_counts(chosen, lambda item: item.failure.key.dag_id),
        others={category: categories[category] for category in StateChangeCategory},
        others_cut=others.is_cut,
    )


def _outcome(failure: RecordedFailure, *, is_last: bool) -> Outcome:
    entry = failure.entry
    if entry.decision.action is not Action.RELAUNCH:
        return Outcome.CHARGED
    if not is_last:
        return Outcome.FAILED_AGAIN
    if failure.try_state in State.success_states:
        return Outcome.HEALED
    if failure.try_state in _UNFINISHED:
        return Outcome.UNDER_WAY
    if failure.try_state is None:
        return Outcome.NOT_KNOWN
    return Outcome.CHARGED if failure.was_stuck else Outcome.FAILED_BY_ITSELF


def _counts(items: Iterable[FailureOutcome], name_of: Callable[[FailureOutcome], str]) -> list[Count]:
    relaunched: Counter[str] = Counter()
    charged: Counter[str] = Counter()
    for item in items:
        (charged if item.is_charged else relaunched)[name_of(item)] += 1
    most = sorted(relaunched | charged, key=lambda name: (-relaunched[name] - charged[name], name))
    return [
        Count(name=name, relaunched=relaunched[name], charged=charged[name]) for name in most[:MOST_NAMES]
    ]


def _nodes(items: Sequence[FailureOutcome]) -> list[Count]:
    times = [(item.failure.at, node_of(item.entry)) for item in items if item.entry.node_is_suspect]
    suspected = {node: at for at, node in sorted(times)}
    counts = _counts(items, lambda item: node_of(item.entry))
    return [count.model_copy(update={"suspected": suspected.get(count.name)}) for count in counts]


def _buckets(items: Iterable[FailureOutcome], since: datetime, until: datetime) -> list[Bucket]:
    width = next((width for width in _WIDTHS if until - since <= MOST_BUCKETS * width), _WIDTHS[-1])
    relaunched: Counter[datetime] = Counter()
    charged: Counter[datetime] = Counter()
    for item in items:
        (charged if item.is_charged else relaunched)[_begin(item.failure.at, width)] += 1
    first = _begin(since, width)
    return [
        Bucket(begins=begins, ends=begins + width, relaunched=relaunched[begins], charged=charged[begins])
        for begins in (first + number * width for number in range(-((first - until) // width)))
    ]


def _begin(at: datetime, width: timedelta) -> datetime:
    return at - (at - _EPOCH) % width
