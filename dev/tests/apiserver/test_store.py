# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from cluster_lab.apiserver.resources import PODS
from cluster_lab.apiserver.store import LogOverrunError, Record, Store


def _write(store: Store, name: str, value: int = 0) -> Record:
    return store.write(PODS, {"metadata": {"namespace": "n", "name": name}, "value": value})


def _names(records: list[Record]) -> list[str]:
    return sorted(record.key[1] for record in records)


def test_the_past_can_be_read_until_it_is_trimmed() -> None:
    store = Store(history=4)
    first = _write(store, "a")
    _write(store, "b")
    _write(store, "a", 1)
    gone = store.get(PODS, ("n", "a"))
    assert gone is not None
    store.remove(gone)

    past = store.records_at(PODS, first.revision)

    assert [(record.key[1], record.obj["value"]) for record in past] == [("a", 0)]
    assert _names(store.records(PODS)) == ["b"]


def test_a_full_log_forgets_its_older_half() -> None:
    store = Store(history=4)
    revisions = [_write(store, f"p{number}").revision for number in range(9)]

    assert store.oldest(PODS) == revisions[4]
    assert _names(store.records_at(PODS, revisions[4])) == ["p0", "p1", "p2", "p3", "p4"]


def test_a_follower_starts_after_a_revision() -> None:
    store = Store()
    first = _write(store, "a")
    _write(store, "b")

    follower = store.logs[PODS].follow(first.revision)
    assert [change.record.key[1] for change in follower.take()] == ["b"]
    _write(store, "c")
    assert [change.record.key[1] for change in follower.take()] == ["c"]
    assert follower.take() == []


def test_a_follower_that_is_too_slow_is_told() -> None:
    store = Store(history=2)
    follower = store.logs[PODS].follow(store.revision)
    for number in range(5):
        _write(store, f"p{number}")

    with pytest.raises(LogOverrunError):
        follower.take()


def test_an_object_is_encoded_once() -> None:
    record = _write(Store(), "a")

    assert record.json is record.json
    assert record.json.startswith(b'{"kind":"Pod","apiVersion":"v1","metadata":')
