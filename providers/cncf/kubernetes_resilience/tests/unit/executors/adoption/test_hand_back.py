# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What was adopted and has to be launched again is handed back to the scheduler, in the same try."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors import reconciler

from ....support import manifests as m
from ....support.harness import lock


def test_a_failed_launch_that_is_adopted_is_scheduled_again_in_the_same_try(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).become(m.start_error())
    heir = successor()

    heir.take_over(ti)
    row = heir.row(ti)
    assert (row.state, row.queued_dttm, row.queued_by_job_id) == ("scheduled", None, None)
    assert (row.try_number, row.max_tries) == (1, 0)
    (entry,) = heir.ledger(ti)
    assert (entry["worker_uid"], entry["action"]) == (pod.ref.uid, "relaunch")
    assert not heir.occupied(ti)
    assert heir.events() == {}
    heir.quiet()
    assert heir.runtime.take("mark_done") == [(pod.ref,)]


def test_a_queued_task_without_pod_is_scheduled_again(harness, queued_ti, successor):
    ti = queued_ti()
    heir = successor()

    assert heir.adopt(ti) == []
    heir.executor.sync()
    row = heir.row(ti)
    assert (row.state, row.queued_dttm, row.queued_by_job_id) == ("scheduled", None, None)
    assert (row.try_number, heir.ledger(ti)) == (1, [])
    assert not heir.occupied(ti)


def test_a_row_that_somebody_has_locked_is_not_waited_for(queued_ti, successor):
    ti, other = queued_ti("locked"), queued_ti("other")
    heir = successor()
    heir.offer(ti, other)
    with lock(ti):
        heir.executor.sync()
    assert (heir.row(ti).state, heir.row(other).state) == ("queued", "scheduled")
    assert (heir.occupied(ti), heir.occupied(other)) == (True, False)
    heir.executor.sync()
    assert heir.row(ti).state == "scheduled"
    assert not heir.occupied(ti)


def test_the_slot_of_a_row_that_is_gone_is_freed(queued_ti, successor, session):
    ti = queued_ti()
    heir = successor()
    heir.offer(ti)
    session.delete(ti)
    session.commit()
    heir.executor.sync()
    assert not heir.occupied(ti)


@pytest.mark.parametrize(("limit", "value"), [("BUILD_BUDGET", -1.0), ("LAUNCH_BATCH", 1)])
def test_it_does_not_wait_until_other_pods_are_built(queued_ti, successor, monkeypatch, limit, value):
    monkeypatch.setattr(reconciler, limit, value)
    others, ti = queued_ti("others", mapped=3), queued_ti("orphan")
    heir = successor()
    for other in others:
        heir.set_state(other, "queued", queued_by_job_id=heir.executor.job_id)
        heir.queue(other)
    heir.executor.heartbeat()
    assert len(heir.runtime.take("create")) < 3
    heir.offer(ti)
    heir.executor.sync()
    assert (heir.row(ti).state, heir.occupied(ti)) == ("scheduled", False)
