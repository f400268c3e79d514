# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from cluster_lab.apiserver.resources import PODS
from cluster_lab.apiserver.store import Follower, Store


def _write(store: Store, name: str) -> None:
    store.write(PODS, {"metadata": {"namespace": "n", "name": name}})


def _names(follower: Follower) -> list[str]:
    return [change.record.key[1] for change in follower.take()]


def test_compaction_forgets_the_changes_that_every_follower_has_taken() -> None:
    store = Store()
    log = store.logs[PODS]
    quick, slow = log.follow(store.revision), log.follow(store.revision)
    _write(store, "a")
    assert _names(quick) == ["a"]
    _write(store, "b")
    store.compact()
    assert (_names(quick), _names(slow)) == (["b"], ["a", "b"])
    store.compact()
    assert log.since(0) == []
    _write(store, "c")
    assert (_names(quick), _names(slow)) == (["c"], ["c"])
