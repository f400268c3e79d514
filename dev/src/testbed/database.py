# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A metadata database, and how it gets into trouble: transactions that hang, and rows that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from testbed.waiting import wait_for

REFUSAL = "refused by the test"
"""What the database says about a row that it refuses."""

_LOCK = 20_251
"""Any number, of an advisory lock that nobody else uses."""

ADOPTION = "OLD.queued_by_job_id <> NEW.queued_by_job_id"
"""A change of the owner, which only adoption makes: to be queued, a row had none."""

RUN_AGAIN = "OLD.state = 'running' AND NEW.state = 'queued'"
"""A task instance that runs is queued, which nobody does but the executor for a worker that was lost."""

_HOLD = """
CREATE FUNCTION hold_update() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared({lock}); RETURN NEW; END $$;
CREATE TRIGGER hold_update BEFORE UPDATE ON task_instance FOR EACH ROW
WHEN ({change}) EXECUTE FUNCTION hold_update();
"""
_WAITING = text(
    f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = {_LOCK} AND NOT granted"  # noqa: S608
)
_TERMINATE = text("SELECT pg_terminate_backend(pid, 10000) FROM unnest(CAST(:pids AS int[])) AS pid")
_REFUSE = """
CREATE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '{refusal}'; END $$;
CREATE TRIGGER refuse_row BEFORE INSERT ON log FOR EACH ROW
WHEN (NEW.event = 'pod launch failed' AND NEW.task_id = '{task_id}') EXECUTE FUNCTION refuse_row();
"""


def execute(url: str, statement: str, **parameters: Any) -> list[Any]:
    """Run a statement on a database, and return the first column of its rows."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        result = connection.execute(text(statement), parameters)
        return list(result.scalars()) if result.returns_rows else []


class HeldUpdates:
    """Transactions that change a task instance in some way, and wait before they can."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def wait(self) -> None:
        """Wait until there is one."""
        wait_for("a scheduler is held", self._pids)

    def fail(self) -> None:
        """Break the connections of those that there are, which rolls them back."""
        self._connection.execute(_TERMINATE, {"pids": self._pids()})

    def _pids(self) -> list[int]:
        return list(self._connection.scalars(_WAITING))


@contextmanager
def updates_held(engine: Engine, change: str) -> Iterator[HeldUpdates]:
    """
    Let nobody change task instances in some way, as long as the block lasts; what waits then goes on.

    :param change: which, a condition of a trigger: :data:`ADOPTION` or :data:`RUN_AGAIN`
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(_HOLD.format(lock=_LOCK, change=change)))
        connection.execute(text(f"SELECT pg_advisory_lock({_LOCK})"))
        try:
            yield HeldUpdates(connection)
        finally:
            connection.execute(text(f"SELECT pg_advisory_unlock({_LOCK})"))
            connection.execute(text("DROP FUNCTION hold_update CASCADE"))


@contextmanager
def ledger_refused(engine: Engine, task_id: str) -> Iterator[None]:
    """Refuse what is to be written about failed launches of tasks of that name."""
    with engine.begin() as connection:
        connection.execute(text(_REFUSE.format(refusal=REFUSAL, task_id=task_id)))
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP FUNCTION refuse_row CASCADE"))
