# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The durable count of failed workers: one row of Airflow's own audit log for each of them.

A row is written before any action about the failure, and has the identity of the worker that failed. The same
failure may be seen again: an event is replayed, a scheduler restarts, a second one takes over. The row then
keeps the failure from being counted or decided twice. The task's *Audit Log* tab shows the rows.

Workers that failed before their task ran and workers lost in their task are counted apart: each kind has an
event of its own. A row may say that it counts as one of the other kind. A task instance that runs again gets
another UUID, and the row has both: the count follows them through the try.

Airflow's scheduler counts its "stuck in queued reschedule" events in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from airflow.models.log import Log
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState
from sqlalchemy import case, func, insert, select, tuple_
from sqlalchemy.orm import Session

from airflow_resilience.keys import names_of_try
from airflow_resilience.ledger_entries import HeldLaunch, Histories, LaunchHistory, LedgerEntry
from airflow_resilience.retry_policy.evidence import Phase

LAUNCH_FAILURE_EVENT = "pod launch failed"
"""``Log.event`` of a ledger row about a launch."""
EXECUTION_FAILURE_EVENT = "pod execution failed"
"""``Log.event`` of a ledger row about a task that was running."""
LAUNCH_HELD_EVENT = "pod launch held"
"""``Log.event`` of a row about a launch that is held back. The row is for people: nothing is counted by
it."""

_EVENTS = {Phase.LAUNCH: LAUNCH_FAILURE_EVENT, Phase.EXECUTION: EXECUTION_FAILURE_EVENT}


class _Row(NamedTuple):
    """A row about one try."""

    event: str
    entry: LedgerEntry | None
    """None for a start, and for a row of another component."""


def read_histories(
    ti_ids: Mapping[TaskInstanceKey, str], *, until: str | None = None, session: Session
) -> dict[TaskInstanceKey, Histories]:
    """
    Read the ledger's entries about each try, with one query.

    Losses of running tasks count however often the task process has started: each loss has replaced the task
    instance's UUID, and the rows lead from each of these UUIDs to the next one. The UUID of a cleared task
    instance has no such row, so its count begins anew.

    :param ti_ids: the tries to look up, each with its task instance's present UUID
    :param until: UID of a worker: rows after its failure, starts too, are ignored for its launches; None for
        all rows
    :param session: session to read with
    """
    rows = _read(ti_ids, session)
    return {
        key: Histories(_launches(ti_id, rows[key], until), _whole_try(ti_id, rows[key]))
        for key, ti_id in ti_ids.items()
    }


def read_replaced_ids(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, set[str]]:
    """Return the UUIDs that tries had before losses of running workers, with one query."""
    return {
        key: {row.entry.ti_id for row in rows if row.entry and row.entry.next_ti_id}
        for key, rows in _read(keys, session).items()
    }


def _launches(ti_id: str, rows: Iterable[_Row], until: str | None = None) -> LaunchHistory:
    history = LaunchHistory()
    for row in rows:
        if row.event == TaskInstanceState.RUNNING:
            history.entries.clear()
        elif row.event == LAUNCH_FAILURE_EVENT and row.entry and row.entry.ti_id == ti_id:
            history.add(row.entry)
            if row.entry.worker_uid == until:
                break
    return history


def _whole_try(ti_id: str, rows: Iterable[_Row]) -> LaunchHistory:
    """Return the entries of the task instance that has the UUID now."""
    entries = [row.entry for row in rows if row.entry]
    before: dict[str, list[str]] = {}
    for entry in entries:
        if entry.next_ti_id:
            before.setdefault(entry.next_ti_id, []).append(entry.ti_id)
    chain: set[str] = set()
    found = [ti_id]
    while found:
        if (newer := found.pop()) not in chain:
            chain.add(newer)
            found.extend(before.get(newer, ()))
    history = LaunchHistory(Phase.EXECUTION)
    for entry in entries:
        if (entry.next_ti_id or entry.ti_id) in chain:
            history.add(entry)
    return history


def record(entries: Collection[tuple[TaskInstanceKey, LedgerEntry]], *, session: Session) -> None:
    """
    Add failed workers to the ledger, with one statement. The entries count once the caller has committed.

    The caller holds the row locks of the task instances. Otherwise two schedulers could record one failure.

    :param entries: each with the try that it is about
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take one of them
    """
    _insert(((key, _EVENTS[entry.phase], entry.to_json()) for key, entry in entries), session)


def record_held(held: Iterable[tuple[TaskInstanceKey, HeldLaunch]], *, session: Session) -> None:
    """
    Record held launches, with one statement.

    :param held: each with its try
    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not take one of them
    """
    _insert(((key, LAUNCH_HELD_EVENT, item.to_json()) for key, item in held), session)


def _insert(rows: Iterable[tuple[TaskInstanceKey, str, str]], session: Session) -> None:
    now = datetime.now(UTC)
    values = [{**key._asdict(), "dttm": now, "event": event, "extra": extra} for key, event, extra in rows]
    if values:
        session.execute(insert(Log), values)


def _read(keys: Iterable[TaskInstanceKey], session: Session) -> dict[TaskInstanceKey, list[_Row]]:
    """Return the rows about each of these tries, oldest first."""
    found: dict[TaskInstanceKey, list[_Row]] = {key: [] for key in keys}
    for key, row in _rows(found, session):
        # A database that ignores case finds rows of other tasks too.
        if key in found:
            found[key].append(row)
    return found


def _rows(keys: Collection[TaskInstanceKey], session: Session) -> Iterator[tuple[TaskInstanceKey, _Row]]:
    if not keys:
        return
    events = (*_EVENTS.values(), TaskInstanceState.RUNNING.value)
    columns = names_of_try(Log)
    is_start = case((Log.event == TaskInstanceState.RUNNING.value, 1), else_=0)
    found = (
        select(
            Log.id,
            *columns,
            Log.event,
            Log.extra,
            # A sensor may have been rescheduled ten thousand times: more than one start in a row says
            # nothing that one does not.
            func.sum(is_start).over(partition_by=columns, order_by=Log.id, rows=(-1, 0)).label("starts"),
        )
        .where(tuple_(*columns).in_([tuple(key) for key in keys]), Log.event.in_(events))
        .subquery()
    )
    rows = session.execute(
        # By id, not by time. All of these rows are written under the task instance's row lock, so their ids
        # are in the order of events. The clocks of several machines are not.
        select(found).where(found.c.starts <= 1).order_by(found.c.id)
    )
    for row in rows:
        event, extra = row[6:8]
        entry = None if event == TaskInstanceState.RUNNING else LedgerEntry.from_json(extra)
        yield TaskInstanceKey(*row[1:6]), _Row(event, entry)
