# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Schedulers that are killed, stopped and doubled: no task is lost, run twice, or given a budget anew."""

from __future__ import annotations

from collections import Counter
from signal import SIGKILL, SIGSTOP, SIGTERM

import pytest

from cluster_lab.journal import JournalEvent
from testbed.cluster import creates_pod
from testbed.records import RECOVERED, UNTOUCHED, Outcome
from testbed.schedulers import EXIT_TIMEOUT
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, wait_for

pytestmark = [pytest.mark.system, pytest.mark.long]


def test_a_new_scheduler_relaunches_what_failed_while_there_was_none(testbed: Testbed) -> None:
    run = testbed.trigger("killed_before_relaunch")
    failing = run.wait_for_pods("failed", 1)[0]
    vanishing = run.wait_for_pods("vanished", 1)[0]
    for scheduler in testbed.schedulers.alive:
        scheduler.process.signal(SIGSTOP)
    testbed.cluster.go_on(failing)
    wait_for("the pod has failed", lambda: run.events("failed", JournalEvent.FAULT_INJECTED))
    testbed.cluster.delete(vanishing)
    assert run.ledger("failed") == []

    testbed.schedulers.replace(SIGKILL)
    run.release()
    assert run.wait_for_end("failed") == RECOVERED
    assert run.wait_for_end("vanished") == Outcome(state="success", pods=2, launch_failures=0)


def test_two_schedulers_leave_each_others_pods_alone_until_one_dies(testbed: Testbed) -> None:
    while len(testbed.schedulers.alive) < 2:
        testbed.schedulers.start()
    before = testbed.cluster.version()
    run = testbed.trigger("failover")
    lost, steady = ("lost_1", "lost_2"), ("steady_1", "steady_2")
    run.wait_for_code(*lost, *steady)

    owners = testbed.cluster.owners_since(before)
    assert {pod: len(jobs) for pod, jobs in owners.items()} == dict.fromkeys(owners, 1)
    pods = {task: run.pods(task) for task in (*lost, *steady)}
    assert {task: len(names) for task, names in pods.items()} == dict.fromkeys(lost, 2) | dict.fromkeys(
        steady, 1
    )

    working = [names[-1] for names in pods.values()]
    busiest = Counter(testbed.cluster.owner(pod) for pod in working).most_common(1)[0][0]
    victim, survivor = sorted(testbed.schedulers.alive, key=lambda scheduler: scheduler.job_id != busiest)
    testbed.schedulers.kill_long_ago(victim)
    testbed.cluster.wait_for_owner(working, survivor.job_id)
    run.release()
    for task in lost:
        assert run.wait_for_end(task) == RECOVERED
    for task in steady:
        assert run.wait_for_end(task) == UNTOUCHED


def test_a_graceful_stop_during_launches_loses_nothing(testbed: Testbed) -> None:
    tasks = [f"task_{number}" for number in range(6)]
    stopped = testbed.schedulers.alive

    def logs() -> list[str]:
        return [scheduler.log() for scheduler in stopped]

    # Not in the turn of its loop in which they are created. Airflow's handler logs, and waits for the lock of
    # the log if it has interrupted a line; and it raises SystemExit wherever the loop is, which the callback
    # of a weak reference swallows: then the signal is lost.
    with testbed.proxy.hold(when=creates_pod) as held:
        run = testbed.trigger("graceful_stop")
        held.wait_for(len(tasks), LONGEST_WAIT)
        marks = [f"Setting external_executor_id for <TaskInstance: graceful_stop.{task} " for task in tasks]
        wait_for("the turn is over", lambda: all(any(mark in log for log in logs()) for mark in marks))
        for scheduler in stopped:
            scheduler.process.signal(SIGTERM)
    assert [scheduler.process.wait(EXIT_TIMEOUT) for scheduler in stopped] == [0] * len(stopped)
    assert not any("Traceback" in log for log in logs())

    testbed.schedulers.start()
    assert testbed.end(run) == dict.fromkeys(tasks, UNTOUCHED)
