# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience history``: the failures of a task in the audit log."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.output import print_rows
from airflow.providers.cncf.kubernetes_resilience.reporting.words import end_in_words
from airflow_resilience.context import ExecutionContext
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.ledger_queries import FAILURE_EVENTS, read_row
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.retry_policy.durations import format_duration


@dataclass(frozen=True, slots=True)
class TryEnd:
    """A row about the loss of a worker, or about another end of the task, and its content."""

    row: Log
    content: LedgerEntry | StoredContext

    @property
    def entry(self) -> LedgerEntry | None:
        """Entry of the ledger; None for a failure without a lost worker."""
        return self.content if isinstance(self.content, LedgerEntry) else None

    def to_dict(self) -> dict[str, Any]:
        """Return all facts for JSON."""
        entry = self.entry
        return {
            "when": self.row.dttm,
            "try_number": self.row.try_number,
            "map_index": self.row.map_index,
            "phase": entry and entry.phase,
            "launch": entry and entry.launch,
            "pod": entry and entry.worker_name,
            "uid": entry and entry.worker_uid,
            "task_instance_id": self.content.ti_id,
            "next_task_instance_id": entry and entry.next_ti_id,
            "reason": entry.reason if entry else self.content.context.reason,
            "context": self.content.context.to_dict(),
            "decision": entry and entry.decision.to_dict(),
            "due": entry and entry.due,
        }

    def to_row(self) -> dict[str, Any]:
        """Return the columns for people."""
        row, entry, context = self.row, self.entry, self.content.context
        decision = entry and entry.decision
        return {
            "when": row.dttm and row.dttm.isoformat(sep=" ", timespec="seconds"),
            "map index": None if row.map_index == -1 else row.map_index,
            "try": row.try_number,
            "phase": entry and entry.phase.value,
            "launch": entry and entry.launch,
            "pod": entry and entry.worker_name,
            "node": entry and context.metadata.get("node"),
            "reason": entry.reason if entry else context.reason.value,
            "category": context.category.value,
            "decision": decision and decision.action.value,
            "delay": decision and format_duration(decision.delay),
            "why": decision.explanation if decision else _why(context),
        }


def _why(context: ExecutionContext) -> str:
    said = (end_in_words(context), context.metadata.get("exception"), context.metadata.get("message"))
    return " ".join(str(text) for text in said if text)


def history(args: Namespace) -> int:
    """
    List the failures of a task, oldest first.

    Failures are lost worker pods, before the start of the task and while it ran, and other ends of tries.
    """
    with create_session() as session:
        rows = list(_read(args, session=session))
        if not rows and not _exists(args, session=session):
            raise CommandError(f"there is no task {args.task_id} in run {args.run_id} of Dag {args.dag_id}")
    failed = [row for row in rows if row]
    if unreadable := len(rows) - len(failed):
        sys.stderr.write(f"rows that are not of this version and are left out: {unreadable}\n")
    print_rows([row.to_dict() for row in failed], [row.to_row() for row in failed], args.output)
    return 0


def _read(args: Namespace, *, session: Session) -> Iterator[TryEnd | None]:
    query = select(Log).where(
        Log.event.in_(FAILURE_EVENTS),
        Log.dag_id == args.dag_id,
        Log.task_id == args.task_id,
        Log.run_id == args.run_id,
    )
    if args.map_index is not None:
        query = query.where(Log.map_index == args.map_index)
    if args.try_number is not None:
        query = query.where(Log.try_number == args.try_number)
    for row in session.scalars(query.order_by(Log.id)):
        content = read_row(row.event, row.extra)
        yield TryEnd(row, content) if isinstance(content, LedgerEntry | StoredContext) else None


def _exists(args: Namespace, *, session: Session) -> bool:
    ti = TaskInstance
    query = select(ti.id).where(
        ti.dag_id == args.dag_id, ti.run_id == args.run_id, ti.task_id == args.task_id
    )
    return session.scalar(query.limit(1)) is not None
