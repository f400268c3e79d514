# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Entries of the ledger, and histories of tries. Pure: :mod:`.ledger` reads and writes the rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from airflow_resilience.context import ExecutionContext, MetadataKey
from airflow_resilience.decision import Action, Decision
from airflow_resilience.mutation import Mutation
from airflow_resilience.outages import Dependency
from airflow_resilience.retry_policy.evidence import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A failed worker, the reason of its failure, and the decision."""

    ti_id: str
    """The task instance's UUID. A cleared task instance has a new one, so its count begins anew."""
    worker_uid: str
    """Identity of the worker that failed. An identity is never used twice (for Kubernetes: the pod's UID)."""
    worker_name: str
    launch: int
    """Number of the launch in its try, from 1."""
    reason: str
    """The platform's own word for the failure."""
    context: ExecutionContext
    decision: Decision
    due: datetime | None = None
    """When the next launch may be made, with a time zone; None if there is none to come."""
    phase: Phase = Phase.LAUNCH
    """Phase of the task, which determines the event of the row."""
    next_ti_id: str | None = None
    """New UUID of a task instance that was running, and runs again; else None."""
    dependency: Dependency | None = None
    """Dependency that was not available to the launch; None if the cause names no shared dependency."""
    away_since: datetime | None = None
    """Start of that dependency's outage, with a time zone; None if no outage was known."""
    node_is_suspect: bool = False
    """Whether the node is suspect from this failure on: all launches prefer other nodes."""

    @property
    def was_pending(self) -> bool:
        """Whether the worker could still start at the time of this failure."""
        metadata = self.context.metadata
        # A pod is Pending for as long as one of its containers has never run, also when its worker has ended.
        return metadata.get(MetadataKey.PHASE) == "Pending" and MetadataKey.EXIT_CODE not in metadata

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
                "phase": self.phase.value,
                "next_ti_id": self.next_ti_id,
                "dependency": self.dependency and str(self.dependency),
                "away_since": self.away_since and self.away_since.isoformat(),
                "node_is_suspect": self.node_is_suspect,
            }
        )

    @classmethod
    def from_json(cls, text: str | None) -> LedgerEntry | None:
        """Read ``Log.extra`` back; None for a row of another component."""
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
                # Rows of version 0.1.0 have none of these.
                phase=Phase(fields.get("phase", Phase.LAUNCH)),
                next_ti_id=_read_id(fields.get("next_ti_id")),
                dependency=Dependency.parse(named) if (named := fields.get("dependency")) else None,
                away_since=_read_time(fields.get("away_since")),
                node_is_suspect=bool(fields.get("node_is_suspect")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLaunch:
    """A held launch and the dependency for which it is held."""

    ti_id: str
    """The task instance's UUID."""
    dependency: Dependency
    """The unavailable dependency."""
    away_since: datetime
    """With a time zone."""

    def to_json(self) -> str:
        """Return the text that is stored in ``Log.extra``."""
        return json.dumps(
            {
                "ti_id": self.ti_id,
                "dependency": str(self.dependency),
                "away_since": self.away_since.isoformat(),
            }
        )

    @classmethod
    def from_json(cls, text: str | None) -> HeldLaunch | None:
        """Read ``Log.extra`` back; None for a row of another version."""
        try:
            fields = json.loads(text or "")
            return cls(
                ti_id=str(fields["ti_id"]),
                dependency=Dependency.parse(fields["dependency"]),
                away_since=_with_zone(datetime.fromisoformat(fields["away_since"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


class LaunchHistory:
    """
    Ledger entries of one try, oldest first.

    :param phase: kind of entries that count: failed launches, or losses of the worker while the task was
        running
    """

    def __init__(self, phase: Phase = Phase.LAUNCH) -> None:
        self.entries: list[LedgerEntry] = []
        self._phase = phase

    @property
    def decisions(self) -> list[Decision]:
        """Decisions about the failures that count."""
        return [entry.decision for entry in self.entries if entry.phase is self._phase]

    @property
    def relaunches(self) -> int:
        """Number of relaunches that followed these failures."""
        return sum(decision.action is Action.RELAUNCH for decision in self.decisions)

    @property
    def mutations(self) -> list[Mutation]:
        """Changes of later launches, from all entries."""
        return [entry.decision.mutation for entry in self.entries if entry.decision.mutation]

    @property
    def last(self) -> LedgerEntry | None:
        """The latest failure."""
        return self.entries[-1] if self.entries else None

    def add(self, entry: LedgerEntry) -> None:
        """
        Add a failure. A worker fails once: a later entry about the worker replaces the earlier one.

        A later entry is written about a worker that was given up, but started before its replacement.
        """
        if earlier := self.of_worker(entry.worker_uid):
            self.forget(earlier)
        self.entries.append(entry)

    def forget(self, entry: LedgerEntry) -> None:
        """Remove an entry from the count."""
        self.entries.remove(entry)

    def of_worker(self, worker_uid: str) -> LedgerEntry | None:
        """Return the entry about a worker; None if the ledger has none."""
        return next((entry for entry in self.entries if entry.worker_uid == worker_uid), None)


class Histories(NamedTuple):
    """The ledger's entries about one try."""

    launches: LaunchHistory
    """Its failed launches since its task process last started."""
    whole_try: LaunchHistory
    """All of its failures; only losses of the running worker count."""


def _read_time(text: str | None) -> datetime | None:
    return _with_zone(datetime.fromisoformat(text)) if text else None


def _with_zone(time: datetime) -> datetime:
    # A time without a time zone is not ours, and cannot be compared with one that has a time zone.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _read_id(value: object) -> str | None:
    return None if value is None else str(value)
