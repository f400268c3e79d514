# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Every way to lose a pod before its task's process starts, on a real cluster, in tasks that outlive watches.

A pod that is lost is only half of it. Upstream's executor launches another one too, and then takes the replay
of the dead one's last event, after the next reconnect of its watch, for the end of the healthy one.
"""

from __future__ import annotations

import pytest

from cluster_lab.journal import JournalEvent
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = pytest.mark.system

RECONNECTS = 4

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
    cut_off, replacement = run.wait_for_pods("partition", 2)
    testbed.decide(replacement)
    run.wait_for_code(*working)
    testbed.decide(cut_off)
    wait_for("the worker that was cut off has been refused", lambda: has_failed(run, "partition", cut_off))
    cleaned_up = run.pods("failed_then_cleanup")[0]
    testbed.cluster.go_on(cleaned_up)
    wait_for("the failed pod is gone", lambda: cleaned_up not in testbed.cluster.names())
    assert run.wait_for_end("lost_twice") == EXPECTED["lost_twice"]
    for _ in range(RECONNECTS):
        testbed.reconnect()
    run.release()

    outcomes = run.wait_for_all_to_end()
    assert outcomes == {task_id: EXPECTED.get(task_id, RECOVERED) for task_id in outcomes}
    assert [task_id for task_id in outcomes if not is_replaced(run, task_id)] == ["control"]
    testbed.cluster.wait_until_done(run.run_id)


def has_failed(run: Run, task_id: str, pod: str) -> bool:
    """Tell whether the worker of a pod has ended, and not well."""
    return any(entry.pod == pod and entry.exit_code for entry in run.events(task_id, JournalEvent.EXITED))


def is_replaced(run: Run, task_id: str) -> bool:
    """Tell whether the first loss of a pod was followed by the arrival of another pod on its node."""
    losses = run.events(task_id, JournalEvent.FAULT_INJECTED)
    return bool(losses) and run.events(task_id, JournalEvent.BOUND)[-1].time > losses[0].time
