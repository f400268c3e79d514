# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Objects in memory with one revision counter and a log of changes.

The counter stands in for etcd's revision: each write takes the next number and that number becomes the
object's resourceVersion, so versions are comparable across resources, as with a real cluster.
Everything here runs on the server's event loop; nothing is locked.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from cluster_lab.apiserver.resources import RESOURCES, Manifest, Resource

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped) and name."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

FIRST_REVISION = 100
"""Above 1, so that resourceVersion=1 is too old from the start, as with a cluster that has lived a while."""


@dataclass(frozen=True)
class Record:
    """One version of an object. Its JSON is made once, however many lists and watches carry it."""

    resource: Resource
    obj: Manifest
    revision: int

    @property
    def key(self) -> Key:
        """:returns: where the object is stored."""
        metadata = self.obj["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    @cached_property
    def item(self) -> bytes:
        """:returns: JSON without kind and apiVersion, as in a list."""
        return msgspec.json.encode(self.obj)

    @cached_property
    def json(self) -> bytes:
        """:returns: JSON with kind and apiVersion, as in a get or a watch event."""
        return self.resource.type_prefix + self.item[1:]

    def at(self, revision: int) -> Record:
        """:returns: the same content under another resourceVersion."""
        metadata = self.obj["metadata"] | {"resourceVersion": str(revision)}
        return Record(self.resource, self.obj | {"metadata": metadata}, revision)


@dataclass(frozen=True)
class Change:
    """One write. ``record`` of a DELETED change has the last content under the deletion's revision."""

    type: ChangeType
    record: Record
    previous: Record | None

    @property
    def revision(self) -> int:
        """:returns: the revision that this write made."""
        return self.record.revision

    @cached_property
    def departed(self) -> Record:
        """:returns: what a watch whose selector the object has left reports as DELETED."""
        return (self.previous or self.record).at(self.revision)


class Follower:
    """A reader's place among the changes. Followers share them, so a slow one holds no memory."""

    def __init__(self, store: Store, revision: int) -> None:
        self._store = store
        self.revision = revision
        """The newest change that it has taken, or a later version."""
        self.wake = asyncio.Event()
        """Set when there may be something to take."""

    def take(self) -> list[Change]:
        """:returns: the changes since the last call, oldest first."""
        self.wake.clear()
        changes = self._store.since(self.revision)
        if changes:
            self.revision = changes[-1].revision
        return changes


class Store:
    """All objects of the server, and the changes since the last compaction."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.oldest = FIRST_REVISION
        """The lowest revision from which a watch or a continued list can still go on."""
        self._records: dict[Resource, dict[Key, Record]] = {r: {} for r in RESOURCES}
        self._changes: list[Change] = []
        self._followers: set[Follower] = set()

    def get(self, resource: Resource, key: Key) -> Record | None:
        """:returns: the object, or None."""
        return self._records[resource].get(key)

    def records(self, resource: Resource) -> list[Record]:
        """:returns: every object of a resource, in no particular order."""
        return list(self._records[resource].values())

    def write(self, resource: Resource, obj: Manifest) -> Record:
        """Create or replace an object; its metadata has to name it."""
        self.revision += 1
        record = Record(resource, obj, self.revision).at(self.revision)
        previous = self._records[resource].get(record.key)
        self._records[resource][record.key] = record
        self._append(Change("MODIFIED" if previous else "ADDED", record, previous))
        return record

    def remove(self, record: Record) -> Record:
        """Delete an object.

        :returns: its last content under the revision of the deletion.
        """
        self.revision += 1
        last = self._records[record.resource].pop(record.key)
        gone = last.at(self.revision)
        self._append(Change("DELETED", gone, last))
        return gone

    def _append(self, change: Change) -> None:
        self._changes.append(change)
        for follower in self._followers:
            follower.wake.set()

    def since(self, revision: int) -> list[Change]:
        """:returns: the changes above a revision, oldest first."""
        return self._changes[bisect_right(self._changes, revision, key=lambda change: change.revision) :]

    @contextmanager
    def followed(self, revision: int) -> Iterator[Follower]:
        """Follow the changes above a revision for as long as the block lasts."""
        follower = Follower(self, revision)
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)

    def compact(self) -> None:
        """Forget history, as etcd does every few minutes: open watches go on, older versions expire."""
        self.oldest = self.revision
        # But for what a follower has yet to take.
        self._changes = self.since(min([self.revision, *(each.revision for each in self._followers)]))

    def records_at(self, resource: Resource, revision: int) -> list[Record]:
        """:returns: the objects as they were at a revision, found by undoing the changes since.

        The caller has checked the revision against :attr:`oldest`.
        """
        past = dict(self._records[resource])
        for change in reversed(self.since(revision)):
            if change.record.resource is not resource:
                continue
            if change.previous is None:
                past.pop(change.record.key, None)
            else:
                past[change.record.key] = change.previous
        return list(past.values())
