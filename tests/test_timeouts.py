# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Tasks that wait for long: in the queue for their relaunch, or for a word of a worker that stands still."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from cluster_lab.faults.plan import Fault
from cluster_lab.journal import JournalEvent
from testbed.cluster import deletes_pod
from testbed.records import RECOVERED, RUN_AGAIN, Outcome
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, holds_for, wait_for

pytestmark = [pytest.mark.system, pytest.mark.long]

QUEUED_TIMEOUT = 60
"""Seconds, for a worker to start on a busy machine. The token of a workload is good for as long."""

DEPLOYMENT = {
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": str(QUEUED_TIMEOUT),
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
}
HEARD_OF_LONG_AGO = text(
    "UPDATE task_instance SET last_heartbeat_at = now() - interval '1' day WHERE dag_id = 'silent'"
)
STUCK = text("SELECT count(*) FROM log WHERE event LIKE 'stuck in queued%' AND dag_id = 'waits_long'")


def test_a_replacement_that_waits_long_is_not_taken_for_a_stuck_task(testbed: Testbed) -> None:
    with testbed.proxy.hold(when=deletes_pod) as held:
        run = testbed.trigger("waits_long")
        # The image cannot be pulled; the replacement waits for the old pod to go, which could still start.
        held.wait_for(1, LONGEST_WAIT)
        holds_for(
            QUEUED_TIMEOUT + 15,
            "the task waits in the queue",
            lambda: (
                run.outcome("lost") == Outcome(state="queued", pods=1, begun=0, ended=0, launch_failures=1)
            ),
        )
    # Its token was made for it. The one of the first launch has expired.
    assert testbed.end(run) == {"lost": RECOVERED}
    with testbed.records.engine.connect() as connection:
        assert connection.execute(STUCK).scalar() == 0


def test_a_worker_that_is_not_heard_of_any_more_is_replaced(testbed: Testbed) -> None:
    run = testbed.trigger("silent")
    run.wait_for_code("silent", "evicted")
    for task in ("silent", "evicted"):
        testbed.cluster.lose(run.pods(task)[0], Fault.NODE_SILENT_RUNNING)
        wait_for("it stands still", lambda task=task: run.events(task, JournalEvent.FAULT_INJECTED))
    # For that one, Kubernetes notices it first; its node does not confirm the deletion.
    testbed.cluster.evict(run.pods("evicted")[0])
    with testbed.records.engine.begin() as connection:
        connection.execute(HEARD_OF_LONG_AGO)
    run.wait_for_times(2, "silent", "evicted")
    run.release()
    assert run.wait_for_all_to_end() == {"silent": RUN_AGAIN, "evicted": RUN_AGAIN}
    assert [run.history(task) for task in ("silent", "evicted")] == [0, 0]
