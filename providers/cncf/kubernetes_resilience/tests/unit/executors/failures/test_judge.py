# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What follows for a launch that has not ended: one table, by its situation and its task instance's row."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Build,
    Fail,
    Release,
    Situation,
    Step,
    judge,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Creation,
    EarlierFailures,
    Launch,
    NextAttempt,
    Waiting,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow, TaskSnapshot
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action, Decision
from airflow_resilience.ledger_entries import Histories, LaunchHistory, LedgerEntry
from airflow_resilience.retry_policy.evidence import Phase

KEY = TaskInstanceKey("dag", "task", "run", 1, -1)
JOB, OTHER = 7, 8
POD = "pod"


def task(state, job_id=JOB, try_number=1, hostname="") -> TaskSnapshot:
    key = KEY._replace(try_number=try_number)
    return TaskSnapshot(KEY, TaskInstanceRow("id", key, state, job_id, hostname))


TASKS = {
    "queued": task("queued"),
    "runs here": task("running", hostname=POD),
    "runs in another pod": task("running", hostname="another"),
    "deferred": task("deferred"),
    "scheduled": task("scheduled", None),
    "scheduled again": task("scheduled"),
    "rescheduled": task("up_for_reschedule"),
    "restarting": task("restarting", hostname=POD),
    "success": task("success"),
    "up_for_retry": task("up_for_retry"),
    "cleared": task(None),
    "in another try": task("queued", try_number=2),
    "runs in another try": task("running", try_number=2, hostname=POD),
    "gone": TaskSnapshot(KEY, None),
    "restarts": TaskSnapshot(KEY, None, task("restarting").row),
    "restarts elsewhere": TaskSnapshot(KEY, None, task("restarting", OTHER).row),
    "queued elsewhere": task("queued", OTHER),
    "runs elsewhere": task("running", OTHER, hostname=POD),
}

PENDING = {"ref": PodRef("default", POD, "uid"), "name": POD}
WAITING = {"waiting": Waiting(None, is_relaunch=True)}


def creating(final: KubernetesApiError | None = None, *, was_unclear: bool = False) -> dict:
    calls = Creation({}, "token", was_unclear=was_unclear, next_attempt=NextAttempt(0.0, final))
    return {"name": POD, "number": 2, "creation": calls}


NOT_WANTED = dict.fromkeys(("success", "up_for_retry", "cleared", "gone"), Step.CANCEL) | dict.fromkeys(
    ("in another try", "runs in another try"), Step.CANCEL
)
ELSEWHERE = dict.fromkeys(
    ("queued elsewhere", "runs elsewhere", "restarts elsewhere"),
    Release(f"scheduler job {OTHER} has it", leaves_pod=True),
)
NOBODYS = Release("no scheduler has it", leaves_pod=True)
ELSEWHERE["scheduled"] = NOBODYS
LABELS_OF_OTHERS = ELSEWHERE | {"gone": NOBODYS}
CREATION = ELSEWHERE | {
    **NOT_WANTED,
    "deferred": Step.CANCEL,
    "scheduled again": Step.CANCEL,
    "rescheduled": Step.CANCEL,
    "restarting": Step.CANCEL,
    "restarts": Step.CANCEL,
    "runs in another try": Step.FOLLOW,
    "runs in another pod": Step.FOLLOW,
}

RELAUNCH = Decision(action=Action.RELAUNCH, policy="policy", rule="rule", explanation="once more")
EARLIER = EarlierFailures(Histories(LaunchHistory(), LaunchHistory(Phase.EXECUTION)), None)
DUE = ELSEWHERE | {
    **NOT_WANTED,
    **dict.fromkeys(("deferred", "scheduled again", "rescheduled", "restarts"), Step.CANCEL),
    **dict.fromkeys(("runs here", "runs in another pod", "restarting"), Step.FOLLOW),
}

# Where nothing is said, the launch waits.
TABLE = {
    "pending": (Situation.UNCHECKED, PENDING, NOT_WANTED | ELSEWHERE),
    "relaunch": (Situation.UNCHECKED, WAITING, NOT_WANTED | ELSEWHERE),
    "launch": (Situation.LAUNCH_DUE, {"waiting": Waiting("job")}, DUE | {"queued": Build(EARLIER)}),
    "without its job": (Situation.LAUNCH_DUE, {"waiting": Waiting(None)}, DUE | {"queued": Step.HAND_BACK}),
    "failed": (
        Situation.LAUNCH_DUE,
        {"waiting": Waiting(None, is_relaunch=True, fails="evicted")},
        DUE | {"queued": Fail("evicted")},
    ),
    "token": (Situation.TOKEN_EXPIRED, PENDING, NOT_WANTED | ELSEWHERE | {"queued": Step.REPLACE}),
    "label": (
        Situation.RELABELLED,
        PENDING,
        dict.fromkeys(TASKS, Step.RELABEL) | LABELS_OF_OTHERS,
    ),
    "repeat": (
        Situation.CREATION_DUE,
        creating(),
        CREATION | {"queued": Step.CREATE, "runs here": Step.CREATE},
    ),
    "refused": (
        Situation.CREATION_DUE,
        creating(KubernetesApiError("no", status=403)),
        CREATION | {"queued": Phase.LAUNCH, "runs here": Step.CREATE_LATER},
    ),
    "repeat, maybe carried out": (
        Situation.CREATION_DUE,
        creating(was_unclear=True),
        CREATION | dict.fromkeys(("queued", "runs here", "restarts"), Step.CREATE),
    ),
    "refused, maybe carried out": (
        Situation.CREATION_DUE,
        creating(KubernetesApiError("no", status=403), was_unclear=True),
        CREATION | {"queued": Phase.LAUNCH, "runs here": Step.CREATE_LATER, "restarts": Step.CREATE_LATER},
    ),
}


@pytest.mark.parametrize(("name", "found"), list(product(TABLE, TASKS)))
def test_every_cell(name, found):
    situation, fields, steps = TABLE[name]
    launch = Launch(KEY, "id", **fields)
    assert judge(situation, launch, TASKS[found], job_id=JOB, earlier=EARLIER) == steps.get(found, Step.WAIT)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("fails", [None, "evicted"])
def test_a_try_whose_last_launch_has_failed_for_good_is_not_launched(action, fails):
    """The scheduler that has decided has died before its report, or reports now that no pod can start."""
    entry = LedgerEntry(
        ti_id="id",
        worker_uid="uid",
        worker_name=POD,
        launch=1,
        reason="Evicted",
        context=ExecutionContext(
            StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_LOST, ContextSource.EXECUTOR, {}
        ),
        decision=replace(RELAUNCH, action=action),
    )
    launches = LaunchHistory()
    launches.add(entry)
    earlier = EARLIER._replace(histories=EARLIER.histories._replace(launches=launches))
    launch = Launch(KEY, "id", waiting=Waiting("job", fails=fails))
    verdict = judge(Situation.LAUNCH_DUE, launch, TASKS["queued"], job_id=JOB, earlier=earlier)
    failed = None if action is Action.RELAUNCH else entry
    if fails:
        assert verdict == Fail("evicted", None, failed)
    elif failed:
        why = f"Pod {POD} failed before the task's process had started: reason Evicted; once more"
        assert verdict == Fail(why, None, entry)
    else:
        assert verdict == Build(earlier)


@pytest.mark.parametrize("name", ["repeat", "refused"])
@pytest.mark.parametrize("found", ["queued", "deferred"])
def test_a_create_call_whose_next_phase_is_queued_was_carried_out(name, found):
    situation, fields, _ = TABLE[name]
    launch = Launch(KEY, "id", **fields)
    assert judge(situation, launch, TASKS[found], job_id=JOB, queued_again=True) is Step.CANCEL


def test_without_a_scheduler_nothing_is_labelled():
    """``DAG.test`` has no scheduler's job, and neither has a task instance that nobody has queued."""
    launch = Launch(KEY, "id", **PENDING)
    assert judge(Situation.RELABELLED, launch, task("queued", None), job_id=None) == NOBODYS
