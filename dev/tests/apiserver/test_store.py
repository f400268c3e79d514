# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from cluster_lab.apiserver import store as store_module
from cluster_lab.apiserver.resources import PODS
from cluster_lab.apiserver.store import LogOverrunError, Store


def _write(store: Store, name: str) -> int:
    return store.write(PODS, {"metadata": {"namespace": "n", "name": name}}).revision


def test_a_full_log_forgets_its_older_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HISTORY", 4)
    store = Store()
    slow = store.logs[PODS].follow(store.revision)
    revisions = [_write(store, f"p{number}") for number in range(9)]

    assert store.oldest(PODS) == revisions[4]
    past = store.records_at(PODS, revisions[4])
    assert sorted(record.key[1] for record in past) == ["p0", "p1", "p2", "p3", "p4"]
    follower = store.logs[PODS].follow(revisions[6])
    assert [change.record.key[1] for change in follower.take()] == ["p7", "p8"]
    assert follower.take() == []
    with pytest.raises(LogOverrunError):
        slow.take()
