# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What has to hold on each supported version of Airflow: tasks heal, before and while they run.

Every way to lose a pod before its task's process starts is among it. A pod that is lost is only half of it.
Upstream's executor launches another one too, and then takes the replay of the dead one's last event, after
the next reconnect of its watch, for the end of the healthy one.

The other modules try more, most of them with the newest version only. Where a version behaves otherwise, a
test says so and why; the limits are those of ``docs/running-tasks.md`` and ``docs/versions.md``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_lab.faults.plan import Fault
from cluster_lab.journal import JournalEvent
from pictures.browser import find_chromium, log_in, open_browser
from pictures.places import FAILURES, launches
from testbed.airflow_version import airflow_version
from testbed.code_journal import Order
from testbed.packages import needs
from testbed.records import EXECUTION_FAILURE_EVENT, RECOVERED, RUN_AGAIN, UNTOUCHED, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.each_version]

DEPLOYMENT = {
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
}

AIRFLOW = airflow_version()

ENDS_AT_SIGTERM = AIRFLOW < (3, 3)
"""The worker has no handler for the signal: it ends at once, and reports nothing."""

NOTES_EACH_START = AIRFLOW >= (3, 2)
"""There is a row in the audit log when a task's process starts, from which a new phase of a try is known."""

GIVEN_UP = Outcome(state="failed", pods=2, begun=0, ended=0, launch_failures=2)

RECONNECTS = 2

AT_WORK = (
    "version_graceful",
    "version_unprotected",
    "version_failed_before",
    "version_resumed",
    "version_cut_off",
)


@pytest.fixture(scope="module")
def runs(testbed: Testbed) -> dict[str, Run]:
    """A run of each DAG but one; pods of tasks that run have been lost, and those of the second pod too."""
    node, *others = testbed.cluster.nodes()
    testbed.cluster.cordon(*others)
    drained = testbed.trigger("version_drained")
    for task in ("python", "bash"):
        drained.wait_for_pods(task, 1)
    testbed.cluster.cordon(node)
    testbed.cluster.cordon(*others, unschedulable=False)
    runs = {dag_id: testbed.trigger(dag_id) for dag_id in ("version_matrix", *AT_WORK)}
    runs["version_drained"] = drained

    drained.wait_for_code("python", "bash")
    testbed.cluster.drain_node(node)
    lose(testbed, runs["version_unprotected"], "work")
    failing = runs["version_failed_before"]
    failing.wait_for_code("work")
    testbed.order(failing.pods("work")[0], Order.FAIL)
    cut_off = runs["version_cut_off"]
    cut_off.wait_for_code("succeeds", "fails", "goes_on")
    for task in ("succeeds", "fails", "goes_on"):
        testbed.cluster.lose(cut_off.pods(task)[0], Fault.PARTITION_RUNNING)
    lose(testbed, runs["version_resumed"], "deferred", pod=2)
    lose(testbed, failing, "work", pod=2)
    return runs


def test_the_version_is_the_one_that_is_meant(testbed: Testbed) -> None:
    answer = testbed.api.http.get("/version").raise_for_status().json()
    assert answer["version"].startswith(f"{AIRFLOW[0]}.{AIRFLOW[1]}.")


# ---------------------------------------------------------------------- before the task runs

EXPECTED = {
    "control": UNTOUCHED,
    "deferred": Outcome(state="success", pods=3, begun=2, ended=2, launch_failures=1),
    "lost_twice": GIVEN_UP,
    # The worker's own failure: written down, and left to the task's retries.
    "worker_exit": Outcome(state="success", try_number=2, max_tries=1, pods=2, launch_failures=1),
    "lost_in_both_phases": (
        Outcome(state="success", pods=4, begun=2, ended=2, launch_failures=2)
        if NOTES_EACH_START
        # Both phases share one count of relaunches, and one is allowed.
        else Outcome(state="failed", pods=3, launch_failures=2)
    ),
}


CAUSES = {
    "control": [],
    "container_status_unknown": ["container-status-unknown"],
    "deferred": ["start-error"],
    "deleted_pending": ["deleted"],
    "drain": ["evicted-by-api"],
    "evicted": ["evicted-by-node-pressure"],
    "failed_then_cleanup": ["container-status-unknown"],
    "force_deleted_starting": ["deleted"],
    "image_pull": ["image-not-found"],
    "image_pull_recovers": ["image-not-found"],
    "init_failure": ["init-container-failed"],
    "lost_in_both_phases": ["start-error", "start-error"],
    "lost_twice": ["evicted-by-node-pressure", "node-lost"],
    "node_lost": ["node-lost"],
    "node_shutdown": ["refused-by-node-shutdown"],
    "node_terminated": ["node-shutdown"],
    "oom_at_start": ["worker-out-of-memory"],
    "partition": ["deleted"],
    "provider_failed": ["refused-by-virtual-kubelet"],
    "start_error": ["start-error"],
    "unexpected_admission": ["refused-by-admission-error"],
    "unknown_then_podgc": ["container-status-unknown"],
    "vanish": ["deleted"],
    "worker_exit": ["worker-failed"],
    "worker_terminated": ["worker-terminated"],
}
"""What the ledger says of each lost launch: the lab's nodes report what real ones do."""


def test_every_lost_launch_is_healed_and_nothing_else_is_touched(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    run = runs["version_matrix"]
    tasks = {task.task_id for task in run.states()}
    cut_off, replacement = run.wait_for_pods("partition", 2)
    testbed.decide(replacement)
    run.wait_for_code(*tasks - {"lost_twice"})
    testbed.decide(cut_off)
    wait_for("the worker that was cut off has been refused", lambda: run.has_failed("partition", cut_off))
    cleaned_up = run.pods("failed_then_cleanup")[0]
    testbed.cluster.go_on(cleaned_up)
    wait_for("the failed pod is gone", lambda: cleaned_up not in testbed.cluster.names())
    assert run.wait_for_end("lost_twice") == GIVEN_UP
    # The executor is told of all pods anew, the dead ones among them, and once more with what came of that.
    for _ in range(RECONNECTS):
        testbed.reconnect()
    outcomes = testbed.end(run)
    assert outcomes == {task: EXPECTED.get(task, RECOVERED) for task in tasks}
    assert [task for task in outcomes if not is_replaced(run, task)] == ["control"]
    assert {task: run.causes(task) for task in tasks} == CAUSES


@needs("chromium", find_chromium())
def test_the_pages_show_what_was_lost(testbed: Testbed, runs: dict[str, Run]) -> None:
    run, task = runs["version_drained"], "python"
    (row,) = wait_for("it is lost", lambda: run.ledger(task, event=EXECUTION_FAILURE_EVENT))
    lost = run.pods(task)[0]
    with open_browser() as browser, log_in(browser, testbed.deployment.url, testbed.api.token) as context:
        page = context.new_page()
        page.goto(f"{testbed.deployment.url}/{launches(run.dag_id, task, run.run_id)}")
        shown = page.locator("main[aria-busy=false]").inner_text()
        assert all(text in shown for text in (lost, row["context"]["reason"], row["context"]["category"]))
        page.goto(f"{testbed.deployment.url}/{FAILURES}?dag_id={run.dag_id}")
        page.locator("#rows tbody tr").first.wait_for()
        assert all(text in page.locator("#rows").inner_text() for text in (run.dag_id, task, lost))


# ---------------------------------------------------------------------- while it runs


def test_what_a_drained_node_ran_runs_again(testbed: Testbed, runs: dict[str, Run]) -> None:
    run = runs["version_drained"]
    run.wait_for_times(2, "python", "bash")
    assert testbed.end(run) == {"python": RUN_AGAIN, "bash": RUN_AGAIN}
    for task in ("python", "bash"):
        expect_unseen(run, task)


def test_a_task_may_use_its_grace_period(testbed: Testbed, runs: dict[str, Run]) -> None:
    run = runs["version_graceful"]
    run.wait_for_code("finishes")
    (pod,) = run.pods("finishes")
    testbed.cluster.evict(pod)
    if ENDS_AT_SIGTERM:
        # It cannot, and loses nothing by it.
        run.wait_for_times(2, "finishes")
        run.release()
        assert run.wait_for_end("finishes") == RUN_AGAIN
        expect_unseen(run, "finishes")
    else:
        wait_for("it has been told to go", lambda: testbed.cluster.is_ending(pod))
        testbed.order(pod, Order.SUCCEED)
        assert run.wait_for_end("finishes") == UNTOUCHED
    testbed.cluster.wait_until_done(run.run_id)


def test_without_a_budget_nothing_runs_again(runs: dict[str, Run]) -> None:
    run = runs["version_unprotected"]
    run.wait_for_end("work")
    run.wait_for_callback("work")
    assert run.outcome("work") == Outcome(
        state="failed", pods=1, ended=0, launch_failures=0, execution_failures=1, callbacks=1
    )


def test_the_tasks_own_failure_and_a_lost_pod_are_counted_apart(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    run = runs["version_failed_before"]
    run.wait_for_times(3, "work")
    ended = Outcome(
        state="success", try_number=2, max_tries=1, pods=3, begun=3, launch_failures=0, execution_failures=1
    )
    assert testbed.end(run) == {"work": ended}
    assert run.history("work") == 1


def test_a_deferred_task_is_resumed_again_with_its_event(testbed: Testbed, runs: dict[str, Run]) -> None:
    run = runs["version_resumed"]
    run.wait_for_times(3, "deferred")
    ended = Outcome(state="success", pods=3, begun=3, ended=2, launch_failures=0, execution_failures=1)
    assert testbed.end(run) == {"deferred": ended}
    expect_unseen(run, "deferred", phases=2)


def test_a_worker_that_was_only_cut_off_cannot_decide_anything(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    run = runs["version_cut_off"]
    tasks = ("succeeds", "fails", "goes_on")
    run.wait_for_times(2, *tasks)
    cut_off = {task: run.pods(task)[0] for task in tasks}
    testbed.order(cut_off["succeeds"], Order.SUCCEED)
    testbed.order(cut_off["fails"], Order.FAIL)
    for task, pod in cut_off.items():
        wait_for("its worker has ended", lambda task=task: run.events(task, JournalEvent.EXITED))
        assert [entry.pod for entry in run.events(task, JournalEvent.EXITED)] == [pod]
    assert set(run.states().values()) == {"running"}
    assert run.steps("succeeds") == ["begun", "begun", "ended"]
    outcomes = testbed.end(run)
    assert outcomes["succeeds"] == replace(RUN_AGAIN, ended=2)
    assert outcomes["goes_on"] == RUN_AGAIN
    # Its first worker, which cannot know better, calls the callback.
    assert outcomes["fails"] == replace(RUN_AGAIN, callbacks=1)
    for task in tasks:
        expect_unseen(run, task)


# ---------------------------------------------------------------------- its scheduler dies


def test_what_a_dead_scheduler_leaves_behind_is_taken_over(testbed: Testbed, runs: dict[str, Run]) -> None:
    run = testbed.trigger("version_scheduler_dies")
    run.wait_for_code("relaunched", "lost")
    lost, hopeless = run.pods("lost")[0], run.wait_for_pods("hopeless", 2)[1]
    for scheduler in testbed.schedulers.alive:
        testbed.schedulers.kill_long_ago(scheduler)
    testbed.cluster.lose(lost, Fault.EVICTED_RUNNING)
    wait_for("its worker has ended", lambda: run.events("lost", JournalEvent.EXITED))

    successor = testbed.schedulers.start()
    run.wait_for_times(2, "lost")
    testbed.cluster.wait_for_owner([hopeless], successor.job_id)
    testbed.cluster.delete(hopeless)
    assert run.wait_for_end("hopeless").state == "failed"
    testbed.end(run)
    run.wait_for_callback("hopeless")
    assert {task.task_id: outcome for task, outcome in run.outcomes().items()} == {
        "relaunched": RECOVERED,
        "lost": RUN_AGAIN,
        "hopeless": Outcome(state="failed", pods=2, begun=0, ended=0, launch_failures=2, callbacks=1),
    }
    assert [row["action"] for row in run.ledger("hopeless")] == ["relaunch", "count"]
    assert run.steps("lost") == ["begun", "begun", "ended"]


# ---------------------------------------------------------------------- what several of them have in common


def is_replaced(run: Run, task: str) -> bool:
    """Tell whether the first loss of a pod was followed by the arrival of another pod on its node."""
    losses = run.events(task, JournalEvent.FAULT_INJECTED)
    return bool(losses) and run.events(task, JournalEvent.BOUND)[-1].time > losses[0].time


def lose(testbed: Testbed, run: Run, task: str, *, pod: int = 1) -> None:
    """Evict a pod of a task when the user's code in it has begun; a phase before it may have had one too."""
    run.wait_for_times(pod, task)
    testbed.cluster.evict(run.pods(task)[pod - 1])


def expect_unseen(run: Run, task: str, *, phases: int = 1) -> None:
    """
    Expect the audit log to know of one lost pod, and nobody else.

    :param phases: how often its process has been started before that
    """
    starts = ["running"] if NOTES_EACH_START else []
    events = [
        event for event in run.audit_log(task) if event in ("running", "failed", EXECUTION_FAILURE_EVENT)
    ]
    assert events == starts * phases + [EXECUTION_FAILURE_EVENT, *starts]
    assert run.history(task) == 0
