# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Schedulers that die, or are paused, at the worst moment of taking over from each other.

Whose a task instance is says its row, and which pod runs it says the UUID on the pod. The label by which a
scheduler watches its pods is changed by other requests, before or after the row, or not at all.

No test waits until a scheduler counts as dead: its last heartbeat is dated back. The threshold is long, so
that one that is killed later in the test counts as alive until the end.
"""

from __future__ import annotations

from collections.abc import Collection
from signal import SIGKILL

import pytest

from cluster_lab.apiserver import RequestInfo
from cluster_lab.faults.plan import Fault
from testbed.cluster import deletes_pod, labels_pod
from testbed.database import ADOPTION, updates_held
from testbed.records import RECOVERED, UNTOUCHED, Run
from testbed.schedulers import Scheduler
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, holds_for, wait_for

pytestmark = [pytest.mark.system, pytest.mark.long]

RUNNING = ("running_1", "running_2", "running_3")


def test_a_successor_is_killed_before_its_adoption_is_committed(
    testbed: Testbed, first_scheduler: Scheduler
) -> None:
    run = testbed.trigger("killed_amid_adoption")
    tasks = [key.task_id for key in wait_for("the run is planned", run.states)]
    run.wait_for_code(*tasks)
    pods = [run.pods(task)[0] for task in tasks]

    testbed.schedulers.kill_long_ago(first_scheduler)
    with updates_held(testbed.records.engine, ADOPTION) as adoption:
        second = testbed.schedulers.start()
        adoption.wait()
        label_early(testbed, pods[::2], second)
        second.end(SIGKILL)
        adoption.fail()
    testbed.schedulers.start()
    testbed.schedulers.wait_for_turns(5)

    assert testbed.end(run) == dict.fromkeys(tasks, UNTOUCHED)


def test_an_adoption_is_rolled_back_and_the_first_owner_comes_back(
    testbed: Testbed, first_scheduler: Scheduler
) -> None:
    run, pods = begin(testbed, "rolled_back")
    second = testbed.schedulers.start()
    with updates_held(testbed.records.engine, ADOPTION) as adoption:
        pause(testbed, first_scheduler)
        adoption.wait()
        label_early(testbed, pods, second)
        first_scheduler.resume()
        second.end(SIGKILL)
        adoption.fail()
    testbed.schedulers.wait_for_turns(5)
    finish(testbed, run)


def test_a_paused_scheduler_comes_back_when_another_has_adopted(
    testbed: Testbed, first_scheduler: Scheduler
) -> None:
    run, pods = begin(testbed, "paused")
    second = testbed.schedulers.start()
    pause(testbed, first_scheduler)
    testbed.cluster.wait_for_owner(pods, second.job_id)
    first_scheduler.resume()
    testbed.schedulers.wait_for_turns(5)
    finish(testbed, run)


def test_what_a_paused_scheduler_has_asked_for_comes_after_the_next_adoption(
    testbed: Testbed, first_scheduler: Scheduler
) -> None:
    run, pods = begin(testbed, "paused_amid_adoption")
    testbed.schedulers.kill_long_ago(first_scheduler)
    late: set[str] = set()

    def is_late(info: RequestInfo) -> bool:
        # The first request about each pod: that of the scheduler that is paused.
        is_first = labels_pod(info) and info.name in pods and info.name not in late
        late.update({info.name} if is_first else ())
        return is_first

    with testbed.proxy.hold(when=is_late) as held:
        second = testbed.schedulers.start()
        held.wait_for(len(pods), LONGEST_WAIT)
        testbed.schedulers.wait_for_turns(1)
        pause(testbed, second)
        third = testbed.schedulers.start()
        testbed.cluster.wait_for_owner(pods, third.job_id)
    testbed.cluster.wait_for_owner(pods, second.job_id)
    second.resume()
    testbed.schedulers.wait_for_turns(5)
    finish(testbed, run)


def test_a_task_that_was_cleared_waits_for_its_worker_whatever_becomes_of_its_scheduler(
    testbed: Testbed, first_scheduler: Scheduler
) -> None:
    run = testbed.trigger("cleared_while_paused")
    run.wait_for_code("running")
    testbed.api.clear(run.dag_id, run.run_id, "running")
    assert run.outcome("running").state == "restarting"
    testbed.schedulers.kill_long_ago(first_scheduler)
    testbed.schedulers.start()
    holds_for(10, "one worker runs", lambda: run.steps("running") == ["begun"])

    run.release()
    wait_for("the next try has begun", lambda: run.steps("running").count("begun") == 2)
    ended = run.wait_for_end("running")
    assert (ended.state, ended.try_number, ended.pods) == ("success", 2, 2)
    assert run.steps("running") == ["begun", "ended"] * 2
    testbed.cluster.wait_until_done(run.run_id)


def test_pods_of_tries_that_are_over_are_tidied_up_after_a_scheduler_that_died(
    testbed: Testbed, first_scheduler: Scheduler
) -> None:
    with testbed.proxy.hold(when=lambda info: labels_pod(info) or deletes_pod(info)):
        # Nothing of what the scheduler asks for about the pods gets through before it is killed.
        run = testbed.trigger("left_behind")
        (pending,) = run.wait_for_pods("pending", 1)
        run.wait_for_code("failed")
        testbed.cluster.lose(run.pods("failed")[0], Fault.KILL_RUNNING)
        testbed.api.clear(run.dag_id, run.run_id, "pending")
        wait_for("the other is retried", lambda: run.outcome("failed").try_number == 2)
        (failed, *_) = run.pods("failed")
        testbed.schedulers.kill_long_ago(first_scheduler)
    testbed.schedulers.start()
    run.release()
    for task, begun in (("failed", 2), ("pending", 1)):
        ended = run.wait_for_end(task)
        assert (ended.state, ended.try_number, ended.begun, ended.ended) == ("success", 2, begun, 1)
    wait_for(
        "the pods are tidied up",
        lambda: pending not in testbed.cluster.names() and testbed.cluster.is_done(failed),
        show=lambda: testbed.cluster.unfinished_business(run.run_id),
    )


def pause(testbed: Testbed, scheduler: Scheduler) -> None:
    """Stop a scheduler for longer than the others wait for it."""
    testbed.schedulers.pause(scheduler)
    testbed.schedulers.count_as_dead(scheduler)


def begin(testbed: Testbed, dag_id: str) -> tuple[Run, list[str]]:
    """Start a run, and return it with the names of its pods when all run but one that is Pending."""
    run = testbed.trigger(dag_id)
    run.wait_for_code(*RUNNING)
    (starting,) = run.wait_for_pods("starting", 1)
    return run, [*(run.pods(task)[0] for task in RUNNING), starting]


def finish(testbed: Testbed, run: Run) -> None:
    """See that the pods are looked after, whoever does it, and that no worker that ran was touched."""
    testbed.cluster.delete(run.pods("starting")[0])
    wait_for("the lost pod has a successor", lambda: len(run.pods("starting")) == 2, show=run.outcomes)
    assert testbed.end(run) == dict.fromkeys(RUNNING, UNTOUCHED) | {"starting": RECOVERED}


def label_early(testbed: Testbed, pods: Collection[str], scheduler: Scheduler) -> None:
    """Label pods that a scheduler is about to adopt, as the official one does before it has committed."""
    for pod in pods:
        testbed.cluster.hand_over(pod, scheduler.job_id)
