# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Every way to lose a pod before its task's process starts, on a real cluster, in tasks that outlive watches.

A pod that is lost is only half of it. Upstream's executor launches another one too, and then takes the replay
of the dead one's last event, after the next reconnect of its watch, for the end of the healthy one.
"""

from __future__ import annotations

from datetime import datetime

import pytest
from rich.console import Console
from rich.table import Table

from cluster_lab.journal import JournalEvent
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = pytest.mark.system

DEPLOYMENT = {"AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1"}

RECONNECTS = 4
SLOWEST_REPLACEMENT = 300.0
"""
Seconds from a pod's loss to its replacement. Here they are few, unless 22 workers start up on few cores.
Upstream's executor takes 600 where a pod is deleted while it is Pending: ``[scheduler] task_queued_timeout``.
"""

RECOVERED = Outcome(state="success", pods=2, launch_failures=1)
EXPECTED = {
    "control": Outcome(state="success", pods=1, launch_failures=0),
    "deferred": Outcome(state="success", pods=3, begun=2, ended=2, launch_failures=1),
    "lost_twice": Outcome(state="failed", pods=2, begun=0, ended=0, launch_failures=2),
    # The worker's own failure: written down, and left to the task's retries.
    "worker_exit": Outcome(state="success", try_number=2, max_tries=1, pods=2, launch_failures=1),
}


def test_every_lost_launch_is_healed_and_nothing_else_is_touched(testbed: Testbed) -> None:
    testbed.deployment.wait_for_dag("matrix")
    run = testbed.trigger("matrix")
    working = {key.task_id for key in wait_for("the run is planned", run.states)} - {"deferred", "lost_twice"}
    assert len(working) == 22
    run.wait_for_code(*working)
    assert run.wait_for_end("lost_twice") == EXPECTED["lost_twice"]
    for _ in range(RECONNECTS):
        testbed.reconnect()
    run.release()

    outcomes = run.wait_for_all_to_end()
    waits = {task_id: seconds_to_replacement(run, task_id) for task_id in outcomes}
    show(outcomes, waits)
    assert outcomes == {task_id: EXPECTED.get(task_id, RECOVERED) for task_id in outcomes}
    assert {task_id for task_id, seconds in waits.items() if seconds is None} == {"control"}
    assert max(seconds for seconds in waits.values() if seconds is not None) < SLOWEST_REPLACEMENT
    wait_for("no pod is left", lambda: not testbed.cluster.unfinished_business(run.run_id))


def seconds_to_replacement(run: Run, task_id: str) -> float | None:
    """Return the time from the first loss of a pod to the arrival of the next one on its node."""
    losses = run.events(task_id, JournalEvent.FAULT_INJECTED)
    if not losses:
        return None
    lost: datetime = losses[0].time
    later = [entry.time for entry in run.events(task_id, JournalEvent.BOUND) if entry.time > lost]
    return (min(later) - lost).total_seconds()


def show(outcomes: dict[str, Outcome], waits: dict[str, float | None]) -> None:
    """Print what became of each task; to be seen with ``pytest -s``, and where the test fails."""
    table = Table("task", "state", "try", "of", "pods", "code", "ledger", "seconds to the next pod")
    for task_id, outcome in outcomes.items():
        wait = waits[task_id]
        table.add_row(
            task_id,
            str(outcome.state),
            str(outcome.try_number),
            str(outcome.max_tries + 1),
            str(outcome.pods),
            f"{outcome.begun}/{outcome.ended}",
            str(outcome.launch_failures),
            "" if wait is None else f"{wait:.2f}",
        )
    Console(width=110).print(table)
