# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The context of a failure as an XCom of its task instance, in the metadata database.

An executor writes it in the transaction that settles the failure. So it is there before Airflow has a
callback run, or a listener called. The worker may write at the same time why it has failed: under a key of
its own, so that neither waits for the other, or takes its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from airflow.models.taskinstancekey import TaskInstanceKey
from sqlalchemy.orm import Session

from airflow_resilience.context import ExecutionContext
from airflow_resilience.propagation.stored import XCOM_KEY, XCOM_KEYS, StoredContext
from airflow_resilience.propagation.xcom_rows import ROWS, Place, place_of


def write_failures(
    failures: Mapping[TaskInstanceKey, tuple[str, ExecutionContext]], *, session: Session
) -> None:
    """
    Store why these tries have failed, in place of what was stored before.

    :param failures: for each try the UUID of its task instance, and why it has failed; the task instances'
        rows are locked, so that none of them is removed meanwhile
    """
    values = {
        key: (ti_id, StoredContext(ti_id, key.try_number, context).to_json())
        for key, (ti_id, context) in failures.items()
    }
    if values:
        ROWS.replace(values, session)


def read_failure(key: TaskInstanceKey, *, session: Session) -> StoredContext | None:
    """Return why a try has failed; None if that is not stored."""
    # An earlier failure leaves one behind, if what follows has never begun.
    found = _read([key], session=session)[place_of(key)]
    return next((item.stored for item in found if item.stored.try_number == key.try_number), None)


def read_failures_of_workers(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, StoredContext]:
    """Return why these tries have failed, of those of which only their worker has said it, with one query."""
    if not keys:
        return {}
    read = _read(keys, session=session)
    found = {
        key: [item for item in read[place_of(key)] if item.stored.try_number == key.try_number]
        for key in keys
    }
    return {key: items[0].stored for key, items in found.items() if items and items[0].xcom_key == XCOM_KEY}


def read_previous_failures(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, ExecutionContext]:
    """Return why the tries right before these have failed, of those of which it is stored, with one query."""
    retried = [key for key in keys if key.try_number > 1]
    if not retried:
        return {}
    read = _read(retried, session=session)
    found = {
        key: [item.stored for item in read[place_of(key)] if item.stored.try_number == key.try_number - 1]
        for key in retried
    }
    return {key: items[0].context for key, items in found.items() if items}


class _Item(NamedTuple):
    """What is stored under one key."""

    xcom_key: str
    stored: StoredContext


def _read(keys: Collection[TaskInstanceKey], *, session: Session) -> defaultdict[Place, list[_Item]]:
    """Return what is stored about these task instances. What counts comes first."""
    rows = ROWS.read({place_of(key) for key in keys}, session)
    found: defaultdict[Place, list[_Item]] = defaultdict(list)
    for place, xcom_key, value in sorted(rows, key=lambda row: XCOM_KEYS.index(row[1])):
        if stored := StoredContext.from_json(value):
            found[place].append(_Item(xcom_key, stored))
    return found
