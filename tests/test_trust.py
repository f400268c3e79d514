# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What cannot be handled stops itself and nothing else; what may pass is waited for, as long as it takes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from signal import SIGKILL

import pytest

from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import PolicyFileError, parse_policies
from cluster_lab.apiserver import RequestInfo
from testbed.cluster import creates_pod
from testbed.database import REFUSAL, ledger_refused
from testbed.records import RECOVERED, Outcome, Run
from testbed.schedulers import Scheduler
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, holds_for, wait_for

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.usefixtures("first_scheduler")]

OTHERS = tuple(f"task_{number}" for number in range(11))

POLICIES = """
policies:
  - name: endless
    rules:
      - name: never
        onReasons: [StartError]
        action: Retry
        backoff: {{initialDelay: {delay}, maxDelay: {delay}, jitter: 0}}
"""

REFUSALS: tuple[tuple[int, str | None], ...] = (
    (401, None),
    (403, None),
    (302, "moved"),
    (404, "no such page"),
    (520, "the server behind has said something strange"),
)
"""HTTP status, and what a proxy says that has answered in place of the API server."""

REFUSED_FOR = 30.0
"""Seconds from the first of them to the last."""

QUEUED_TIMEOUT = 15
"""Seconds."""

OUTAGE_ENV = {
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": str(QUEUED_TIMEOUT),
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "1",
    # A new scheduler looks for its predecessor's pods for half as long, and then runs without.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
}
OUTAGE = 3 * QUEUED_TIMEOUT + 10.0
"""Seconds. The third time that a task is found stuck in the queue, Airflow fails it."""


def DEPLOYMENT(home: Path) -> dict[str, str]:  # noqa: N802 - what conftest.py looks for
    """Return the configuration, which names a policy file with the longest delay that there can be."""
    policies = home / "longest_delay.yaml"
    policies.write_text(POLICIES.format(delay=longest_delay()))
    return {"AIRFLOW__KUBERNETES_RESILIENCE__RETRY_POLICY_FILE": str(policies)}


def longest_delay() -> str:
    """Return the longest delay that a policy file may ask for."""
    seconds = bisect_left(range(1, 10**16), True, key=lambda number: not is_allowed(f"{number}s"))
    return f"{seconds}s"


def is_allowed(delay: str) -> bool:
    """Tell whether a policy file may ask for such a delay."""
    try:
        parse_policies(POLICIES.format(delay=delay), "policies.yaml", built_in(1, ()))
    except PolicyFileError:
        return False
    return True


# ---------------------------------------------------------------------- poison


def test_the_longest_delay_of_one_task_stops_nothing_else(testbed: Testbed) -> None:
    run = testbed.trigger("endless_delay")
    run.release()
    try:
        expect_healed(testbed, run, OTHERS)
        (row,) = run.ledger("poisoned")
        assert (row["rule"], row["action"]) == ("never", "relaunch")
        expect_successor_to_work(testbed)
        assert run.outcome("poisoned") == Outcome(state="queued", pods=1, begun=0, ended=0, launch_failures=1)
    finally:
        mark_failed(testbed, run, "poisoned")


def test_a_row_that_the_database_refuses_stops_nothing_else(testbed: Testbed) -> None:
    with ledger_refused(testbed.records.engine, "unwritable"):
        run = testbed.trigger("refused_row")
        run.release()
        try:
            expect_healed(testbed, run, OTHERS)
            failed = Outcome(state="failed", pods=1, begun=0, ended=0, launch_failures=0)
            wait_for("the other has failed", lambda: run.outcome("unwritable") == failed, show=run.outcomes)
            assert REFUSAL in testbed.schedulers.log()
            expect_successor_to_work(testbed)
        finally:
            mark_failed(testbed, run, "unwritable")


def expect_healed(testbed: Testbed, run: Run, tasks: Iterable[str]) -> None:
    """Wait until tasks have lost a pod and succeeded, and the scheduler has lived through it."""

    def healed() -> bool:
        assert testbed.schedulers.alive, (
            f"the scheduler has ended; the tasks are {run.states()}:\n{testbed.schedulers.log()[-4000:]}"
        )
        return all(run.outcome(task) == RECOVERED for task in tasks)

    wait_for("the others are healed", healed, show=run.states)


def expect_successor_to_work(testbed: Testbed) -> None:
    """Replace the scheduler; the next one finds what this one had to do with."""
    testbed.schedulers.kill_long_ago(testbed.schedulers.alive[0])
    testbed.schedulers.start()
    run = testbed.trigger("afterwards")
    run.release()
    expect_healed(testbed, run, ["lost"])


def mark_failed(testbed: Testbed, run: Run, task_id: str) -> None:
    """Have nothing left of a task for the next test."""
    if run.outcome(task_id).state == "failed":
        return  # to mark it again is a conflict
    testbed.api.mark(run.dag_id, run.run_id, task_id, "failed")


# ---------------------------------------------------------------------- refused


def test_an_api_server_may_refuse_to_create_pods(testbed: Testbed) -> None:
    faults, runs, refused = testbed.proxy.faults, [], 0

    def is_refused(info: RequestInfo) -> bool:
        nonlocal refused
        refused += creates_pod(info)
        return creates_pod(info)

    def refuse(status: int, page: str | None) -> None:
        faults.clear()
        faults.fail(status, times=None, when=is_refused, page=page)

    try:
        for status, page in REFUSALS:
            refuse(status, page)
            before = refused
            runs.append(testbed.trigger("refused_credentials", f"refused_{status}"))
            wait_for(f"{status} is answered to both", lambda before=before: refused >= before + 2)
            holds_for(
                REFUSED_FOR / len(REFUSALS), "the scheduler lives", lambda: bool(testbed.schedulers.alive)
            )
    finally:
        faults.clear()
    for run in runs:
        run.release()
    expected = {run.run_id: dict.fromkeys(("task_1", "task_2"), ONCE) for run in runs}
    assert {run.run_id: ends_of(run) for run in runs} == expected


# ---------------------------------------------------------------------- away for long


@pytest.mark.control_plane
def test_an_outage_may_be_longer_than_tasks_may_be_queued(
    testbed: Testbed, first_scheduler: Scheduler
) -> None:
    assert testbed.control_plane is not None
    first_scheduler.end(SIGKILL)
    scheduler = testbed.schedulers.start(OUTAGE_ENV)
    run = testbed.trigger("long_outage")
    run.wait_for_code("working")
    run.wait_for_pods("lost", 1)
    with testbed.proxy.hold(when=creates_pod) as held:
        asked_for = testbed.trigger("long_outage_launches", "asked_for_before")
        held.wait_for(2, LONGEST_WAIT)
        testbed.control_plane.kill_apiserver()
    try:
        testbed.schedulers.kill_long_ago(scheduler)
        testbed.schedulers.start(OUTAGE_ENV)
        queued = testbed.trigger("long_outage_launches", "queued_meanwhile")
        holds_for(OUTAGE, "the scheduler runs", lambda: bool(testbed.schedulers.alive))
        testbed.schedulers.wait_for_turns(1)
    finally:
        testbed.control_plane.start_apiserver()
    runs = (run, asked_for, queued)
    for each in runs:
        each.release()
    expected = {each.run_id: dict.fromkeys(("task_1", "task_2"), ONCE) for each in (asked_for, queued)}
    expected[run.run_id] = dict.fromkeys(("working", "lost"), ONCE)
    assert {each.run_id: ends_of(each) for each in runs} == expected


# ---------------------------------------------------------------------- what both have in common

ONCE = ("success", 1, 0, 1, 1)
"""State, try and the number of retries of a task, and how often its code has begun and ended."""


def ends_of(run: Run) -> dict[str, tuple[str | None, int, int, int, int]]:
    """Wait for the end of all tasks of a run, and return what has become of each, whatever pods that took."""
    return {
        task_id: (end.state, end.try_number, end.max_tries, end.begun, end.ended)
        for task_id, end in run.wait_for_all_to_end().items()
    }
