# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the end of a pod means, for each state that its task instance can be in by then."""

from __future__ import annotations

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Assessment,
    Keep,
    Release,
    Report,
    assess,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow, TaskSnapshot
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    HEARTBEAT_TIMEOUT,
    PodFailure,
    find_failure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow_resilience.retry_policy.evidence import Phase

from ....support import manifests as m

KEY = TaskInstanceKey("sales", "load", "manual__2026-03-01T08:00:00+00:00", 1, -1)
JOB, OTHER_JOB = 7, 8
POD, SIBLING = "sales-load-x7m2k9qp", "sales-load-b3n8w1zc"

FAILED = find_failure(read_pod(m.start_error()))
GIVEN_UP = find_failure(read_pod(m.image_pull_error()), given_up_reasons=("ErrImagePull",))
OVERDUE = PodFailure(
    DELETION_OVERDUE, read_pod(m.pod("Running", [m.base(m.running())], deleted=True)), alive=True
)
SILENT = PodFailure(HEARTBEAT_TIMEOUT, read_pod(m.alive()), alive=True)


def row(
    state: str | None, *, try_number: int = 1, job_id: int | None = JOB, hostname: str = ""
) -> TaskInstanceRow:
    return TaskInstanceRow("id", KEY._replace(try_number=try_number), state, job_id, hostname)


def assessed(
    failure: PodFailure | None,
    row: TaskInstanceRow | None,
    *,
    queued_again: bool = False,
) -> Assessment:
    launch = Launch(KEY, "id", name=POD, failure=failure)
    return assess(launch, TaskSnapshot(KEY, row), job_id=JOB, queued_again=queued_again)


# -------------------------------------------------------------------------------------------------- the table

LAUNCH_FAILURE, EXECUTION_FAILURE, KEEP = Phase.LAUNCH, Phase.EXECUTION, Keep()


def report(state: str | None) -> Assessment:
    return Report(state)


TABLE: dict[str | None, tuple[Assessment, Assessment, Assessment, Assessment]] = {
    # state: the pod succeeded; failed; was given up on; its worker is silent
    "queued": (LAUNCH_FAILURE,) * 4,
    "running": (EXECUTION_FAILURE, EXECUTION_FAILURE, KEEP, EXECUTION_FAILURE),
    "restarting": (report("restarting"), report("failed"), KEEP, KEEP),
    # The worker has reported, or somebody has decided otherwise: the pod has no say in it any more.
    "success": (report("success"),) * 4,
    "failed": (report("failed"),) * 4,
    "skipped": (report("skipped"),) * 4,
    "up_for_retry": (report("up_for_retry"),) * 4,
    "up_for_reschedule": (report("up_for_reschedule"),) * 4,
    "deferred": (report("deferred"),) * 4,
    "awaiting_input": (report("awaiting_input"),) * 4,
    "scheduled": (report("scheduled"),) * 4,
    "upstream_failed": (report("upstream_failed"),) * 4,
    "removed": (report("removed"),) * 4,
    None: (report(None),) * 4,
}
ENDS: tuple[tuple[str, PodFailure | None, int], ...] = (
    ("succeeded", None, 0),
    ("failed", FAILED, 1),
    ("given up on", GIVEN_UP, 2),
    ("deletion overdue", OVERDUE, 2),
    ("silent", SILENT, 3),
)


def test_table_has_every_state() -> None:
    assert set(TABLE) == {state.value for state in TaskInstanceState} | {None}


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize(("end", "failure", "column"), ENDS, ids=[end[0] for end in ENDS])
def test_state_of_the_task_instance_decides(
    state: str | None, end: str, failure: PodFailure | None, column: int
) -> None:
    assert assessed(failure, row(state)) == TABLE[state][column]


# ----------------------------------------------------------------------------------- not this launch's affair

any_end = pytest.mark.parametrize("failure", [end[1] for end in ENDS], ids=[end[0] for end in ENDS])


@any_end
@pytest.mark.parametrize("state", TABLE)
def test_next_phase_is_not_touched_by_the_pod_of_the_last(
    failure: PodFailure | None, state: str | None
) -> None:
    assert assessed(failure, row(state), queued_again=True) == Release("its next phase is queued")


@any_end
@pytest.mark.parametrize(
    "found",
    [None, row("queued", try_number=2), row("running", try_number=2), row(None, try_number=0)],
    ids=["gone", "queued in the next try", "running in the next try", "back before its first try"],
)
def test_pod_of_another_life_or_try_changes_nothing(
    failure: PodFailure | None, found: TaskInstanceRow | None
) -> None:
    assert assessed(failure, found) == Release("the task instance was cleared or deleted")


@any_end
@pytest.mark.parametrize("job_id", [OTHER_JOB, None])
def test_task_instance_that_another_scheduler_has_queued_is_left_to_it(
    failure: PodFailure | None, job_id: int | None
) -> None:
    assessment = assessed(failure, row("queued", job_id=job_id))
    # That one counts the failure of its pod. One that may still start could start beside another.
    counts = failure is not None and not failure.alive
    why = f"scheduler job {job_id} has queued it"
    assert assessment == Release(why, leaves_pod=counts)


@any_end
@pytest.mark.parametrize("state", ["success", "deferred"])
def test_scheduler_that_queued_it_does_not_matter_once_the_worker_has_reported(
    failure: PodFailure | None, state: str
) -> None:
    assert assessed(failure, row(state, job_id=OTHER_JOB)) == assessed(failure, row(state))


@pytest.mark.parametrize("failure", [None, FAILED])
def test_what_runs_and_is_another_schedulers_is_released(failure: PodFailure | None) -> None:
    release = Release("scheduler job 8 has it", leaves_pod=True)
    assert assessed(failure, row("running", job_id=OTHER_JOB)) == release


@pytest.mark.parametrize(
    ("failure", "here", "elsewhere"),
    [
        (None, report("success"), Release("scheduler job 8 has it", leaves_pod=True)),
        (FAILED, report("failed"), Release("scheduler job 8 has it", leaves_pod=True)),
        (OVERDUE, KEEP, KEEP),
        (GIVEN_UP, report("failed"), Release("scheduler job 8 has it", leaves_pod=False)),
        (SILENT, report("failed"), Release("scheduler job 8 has it", leaves_pod=False)),
    ],
    ids=["succeeded", "failed", "deletion overdue", "given up on", "silent"],
)
def test_task_that_was_cleared_while_it_ran_waits_for_the_end_of_its_worker(
    failure: PodFailure | None, here: Assessment, elsewhere: Assessment
) -> None:
    """Airflow gives it another UUID at once."""
    launch = Launch(KEY, "id", name=POD, failure=failure, facts=failure and failure.facts)
    for owner, expected in ((JOB, here), (OTHER_JOB, elsewhere)):
        task = TaskSnapshot(KEY, None, row("restarting", job_id=owner))
        assert assess(launch, task, job_id=JOB, queued_again=False) == expected


# ------------------------------------------------------------------------------------------ who won the start


@pytest.mark.parametrize("failure", [FAILED, GIVEN_UP, OVERDUE, SILENT])
@pytest.mark.parametrize("state", ["running", "restarting"])
def test_task_that_runs_in_an_earlier_pod_is_not_failed(failure: PodFailure, state: str) -> None:
    assessment = assessed(failure, row(state, hostname=SIBLING))
    assert assessment == Release(f"the task runs on {SIBLING}, which is another pod", runs_elsewhere=True)


def test_pod_that_succeeded_reports_what_the_database_says_wherever_the_task_runs() -> None:
    assert assessed(None, row("running", hostname=SIBLING)) == report("running")
