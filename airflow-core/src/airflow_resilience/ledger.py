# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The durable count of failed launches: one row of Airflow's own audit log for each of them.

A row is written before anything is done about the failure, and has the identity of the worker that failed.
The same failure may be seen again: an event is replayed, a scheduler restarts, a second one takes over. It
then finds its row, and is neither counted nor decided twice. The task's *Audit Log* tab shows the rows.

Airflow's scheduler counts its "stuck in queued reschedule" events in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.models.log import Log
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from airflow_resilience.context import ExecutionContext
from airflow_resilience.decision import Action, Decision

LAUNCH_FAILURE_EVENT = "pod launch failed"
"""``Log.event`` of a ledger row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One failed launch, why it failed, and what was decided about it."""

    ti_id: str
    """The task instance's UUID. A cleared task instance has a new one, so its count begins anew."""
    worker_uid: str
    """Identity of the worker that failed. It is never used twice (for Kubernetes: the pod's UID)."""
    worker_name: str
    launch: int
    """Which launch of its try the worker was, from 1."""
    reason: str
    """The platform's own word for the failure."""
    context: ExecutionContext
    decision: Decision
    due: datetime | None = None
    """When the next launch may be made, with a time zone; None if there is none to come."""

    def to_json(self) -> str:
        """Return the text that is stored in ``Log.extra``."""
        return json.dumps(
            {
                **self.decision.to_dict(),
                "due": self.due.isoformat() if self.due else None,
                "launch": self.launch,
                "reason": self.reason,
                "context": self.context.to_dict(),
                "worker_name": self.worker_name,
                "worker_uid": self.worker_uid,
                "ti_id": self.ti_id,
            }
        )

    @classmethod
    def from_json(cls, text: str | None) -> LedgerEntry | None:
        """Read ``Log.extra`` back; None if it is not a ledger entry (somebody else's row)."""
        try:
            fields = json.loads(text or "")
            return cls(
                ti_id=str(fields["ti_id"]),
                worker_uid=str(fields["worker_uid"]),
                worker_name=str(fields["worker_name"]),
                launch=int(fields["launch"]),
                reason=str(fields["reason"]),
                context=ExecutionContext.from_dict(fields["context"]),
                decision=Decision.from_dict(fields),
                due=_read_time(fields["due"]),
            )
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            return None


class LaunchHistory:
    """The ledger entries of one try since its task process last started, oldest first."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []

    @property
    def decisions(self) -> list[Decision]:
        """What was decided about each of the failures."""
        return [entry.decision for entry in self.entries]

    @property
    def relaunches(self) -> int:
        """How many of the failures were answered with a relaunch."""
        return sum(decision.action is Action.RELAUNCH for decision in self.decisions)

    @property
    def last(self) -> LedgerEntry | None:
        """The latest failure."""
        return self.entries[-1] if self.entries else None

    def add(self, entry: LedgerEntry) -> None:
        """
        Add a failure. A worker fails once: a later entry about it replaces an earlier one.

        A later entry is written if a worker was given up on, but started before it was replaced.
        """
        if earlier := self.of_worker(entry.worker_uid):
            self.forget(earlier)
        self.entries.append(entry)

    def forget(self, entry: LedgerEntry) -> None:
        """Remove an entry, so that it does not count."""
        self.entries.remove(entry)

    def of_worker(self, worker_uid: str) -> LedgerEntry | None:
        """Return the entry about that worker, if its failure has been decided before."""
        return next((entry for entry in self.entries if entry.worker_uid == worker_uid), None)


def read_histories(
    ti_ids: Mapping[TaskInstanceKey, str], *, session: Session
) -> dict[TaskInstanceKey, LaunchHistory]:
    """
    Read what the ledger says about each task instance, with one query.

    :param ti_ids: the tries to look up, each with its task instance's UUID
    :param session: session to read with
    """
    histories = {key: LaunchHistory() for key in ti_ids}
    by_columns = {tuple(key): key for key in ti_ids}
    for columns, event, extra in _rows(by_columns, session):
        if (key := by_columns.get(columns)) is None:
            continue  # the database ignores case, and this is another task's row
        if event == TaskInstanceState.RUNNING:
            histories[key].entries.clear()
        elif (entry := LedgerEntry.from_json(extra)) and entry.ti_id == ti_ids[key]:
            histories[key].add(entry)
    return histories


def record(key: TaskInstanceKey, entry: LedgerEntry, *, session: Session) -> None:
    """
    Add a failed launch to the ledger. It counts once the caller has committed.

    The caller holds the row lock of the task instance. Otherwise two schedulers could record one failure.
    """
    session.add(Log(event=LAUNCH_FAILURE_EVENT, task_instance=key, extra=entry.to_json()))


def _read_time(text: str | None) -> datetime | None:
    if not text:
        return None
    time = datetime.fromisoformat(text)
    # A time without a time zone is not ours, and cannot be compared with one that has a time zone.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _rows(
    keys: Collection[tuple[Any, ...]], session: Session
) -> list[tuple[tuple[Any, ...], str, str | None]]:
    if not keys:
        return []
    columns = (Log.dag_id, Log.task_id, Log.run_id, Log.try_number, Log.map_index)
    rows = session.execute(
        # By id, not by time. Both kinds of row are written under the task instance's row lock, so their ids
        # are in the order of events. The clocks of several machines are not.
        select(*columns, Log.event, Log.extra)
        .where(
            tuple_(*columns).in_(keys),
            Log.event.in_((LAUNCH_FAILURE_EVENT, TaskInstanceState.RUNNING.value)),
        )
        .order_by(Log.id)
    )
    return [(tuple(row[:5]), row.event, row.extra) for row in rows]
