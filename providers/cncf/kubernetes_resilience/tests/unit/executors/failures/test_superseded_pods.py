# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a pod that is not the pod of a current launch, for all that may be heard of it."""

from __future__ import annotations

from itertools import product

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import (
    PodUpdate,
    Step,
    judge_superseded,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Creation,
    Deletion,
    Launch,
    Waiting,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef, read_pod

from ....support import manifests as m

KEY = TaskInstanceKey("dag", "task", "run", 1, -1)
PODS = {
    "pending": read_pod(m.starting()),
    "running": read_pod(m.pod("Running", [m.base(m.running())])),
    "deleted": read_pod(m.pod("Running", [m.base(m.running())], deleted=True)),
    "succeeded": read_pod(m.succeeded()),
    "succeeded, deleted": read_pod(m.pod("Succeeded", [m.base(m.COMPLETED)], deleted=True)),
    "failed": read_pod(m.start_error()),
    "done beside a sidecar": read_pod(m.lingering(m.COMPLETED)),
    "failed beside a sidecar": read_pod(m.lingering()),
}
CREATION = Creation({}, "token", next_attempt=None)
LAUNCHES = {
    "unknown": None,
    "given up": Launch(KEY, "ti", ref=PODS["pending"].ref, deletion=Deletion(300.0, unless_started=True)),
    "revoked": Launch(KEY, "ti", ref=PODS["pending"].ref, deletion=Deletion(300.0)),
    "cancelled": Launch(KEY, "ti", creation=CREATION, deletion=Deletion(120.0, unless_started=True)),
    "seen": Launch(
        KEY,
        "ti",
        creation=CREATION,
        deletion=Deletion(300.0, unless_started=True, seen=PODS["pending"].ref),
    ),
    "another seen": Launch(
        KEY, "ti", creation=CREATION, deletion=Deletion(300.0, seen=PodRef("ns", "other", "uid"))
    ),
    "cancelled and revoked": Launch(KEY, "ti", creation=CREATION, deletion=Deletion(120.0)),
}
REPLACEMENTS = {
    "no other": None,
    "waits": Launch(KEY, "ti", waiting=Waiting(job=None)),
    "is created": Launch(KEY, "ti", creation=CREATION),
}


def judge(
    update: PodUpdate, pod: str, launch: str, replacement: str = "no other", label: str = "ours"
) -> Step:
    return judge_superseded(
        update, PODS[pod], LAUNCHES[launch], REPLACEMENTS[replacement], is_labelled=label == "ours"
    )


@pytest.mark.parametrize(
    ("heard", "step"),
    [
        # The pod is gone, or another scheduler has labelled it.
        ((PodUpdate.UNSEEN, "running", "given up"), Step.CONFIRM),
        ((PodUpdate.UNSEEN, "failed", "given up"), Step.FORGET),
        ((PodUpdate.UNSEEN, "running", "unknown"), Step.FORGET),
        # What has started is followed again if its replacement waits, and else ends by itself.
        ((PodUpdate.SEEN, "running", "given up", "waits"), Step.TAKE_BACK),
        ((PodUpdate.SEEN, "running", "cancelled", "waits"), Step.TAKE_BACK),
        ((PodUpdate.SEEN, "deleted", "given up", "waits"), Step.WAIT),
        ((PodUpdate.SEEN, "running", "given up", "is created"), Step.WAIT),
        ((PodUpdate.SEEN, "running", "revoked", "waits"), Step.WAIT),
        ((PodUpdate.NOT_DELETED, "running", "given up", "waits"), Step.TAKE_BACK),
        ((PodUpdate.NOT_DELETED, "failed", "given up", "waits"), Step.TAKE_BACK),
        ((PodUpdate.NOT_DELETED, "running", "given up", "is created"), Step.FORGET),
        ((PodUpdate.NOT_DELETED, "running", "revoked", "waits"), Step.WAIT),
        # What has ended is cleaned up. Whose failure that is matters if nobody has followed it.
        ((PodUpdate.SEEN, "succeeded", "unknown"), Step.ASK_WHO_COUNTS),
        ((PodUpdate.SEEN, "failed", "unknown"), Step.ASK_WHO_COUNTS),
        ((PodUpdate.SEEN, "failed", "given up", "is created"), Step.CLEAN_UP),
        ((PodUpdate.SEEN, "failed", "cancelled", "waits"), Step.CLEAN_UP),
        ((PodUpdate.SEEN, "succeeded, deleted", "unknown"), Step.WAIT),
        ((PodUpdate.SEEN, "succeeded, deleted", "given up", "is created"), Step.CLEAN_UP),
        ((PodUpdate.NOT_DELETED, "failed", "given up", "is created"), Step.CLEAN_UP),
        # So has a worker beside which a sidecar runs on.
        ((PodUpdate.SEEN, "done beside a sidecar", "unknown"), Step.ASK_WHO_COUNTS),
        ((PodUpdate.SEEN, "failed beside a sidecar", "unknown"), Step.ASK_WHO_COUNTS),
        ((PodUpdate.SEEN, "failed beside a sidecar", "given up", "is created"), Step.ASK_WHO_COUNTS),
        ((PodUpdate.NOT_DELETED, "failed beside a sidecar", "given up", "is created"), Step.ASK_WHO_COUNTS),
        ((PodUpdate.NOT_DELETED, "done beside a sidecar", "given up"), Step.ASK_WHO_COUNTS),
        ((PodUpdate.NOT_DELETED, "failed beside a sidecar", "given up", "waits"), Step.TAKE_BACK),
        # What has not started goes when its try is over.
        ((PodUpdate.SEEN, "pending", "unknown"), Step.ASK_WHO_COUNTS),
        # The answer to a create call may be missing, late, or given twice.
        ((PodUpdate.SEEN, "pending", "cancelled"), Step.FIND),
        ((PodUpdate.SEEN, "running", "cancelled and revoked"), Step.FIND),
        ((PodUpdate.SEEN, "pending", "seen"), Step.WAIT),
        ((PodUpdate.SEEN, "pending", "given up"), Step.WAIT),
        ((PodUpdate.SEEN, "running", "unknown"), Step.WAIT),
        ((PodUpdate.SEEN, "pending", "another seen"), Step.FIND),
        ((PodUpdate.CREATED, "pending", "cancelled"), Step.DELETE),
        ((PodUpdate.CREATED, "failed", "cancelled", "waits"), Step.CLEAN_UP),
        ((PodUpdate.CREATED, "pending", "seen"), Step.DELETE),
        ((PodUpdate.CREATED, "pending", "unknown"), Step.DELETE),
        ((PodUpdate.CREATED, "pending", "given up"), Step.WAIT),
        # A label is no proof, in either direction.
        ((PodUpdate.CREATED, "pending", "cancelled", "waits", "another's"), Step.ASK_WHOSE),
        ((PodUpdate.NOT_DELETED, "pending", "given up", "waits", "another's"), Step.ASK_WHOSE),
        ((PodUpdate.NOT_DELETED, "running", "given up", "waits", "another's"), Step.ASK_WHOSE),
        ((PodUpdate.NOT_DELETED, "pending", "unknown", "waits", "another's"), Step.ASK_WHOSE),
        ((PodUpdate.NOT_DELETED, "pending", "given up"), Step.DELETE),
        ((PodUpdate.OURS, "pending", "given up", "waits", "another's"), Step.DELETE),
        ((PodUpdate.OURS, "running", "given up", "waits", "another's"), Step.TAKE_BACK),
        ((PodUpdate.OURS, "running", "given up", "is created", "another's"), Step.FORGET),
        ((PodUpdate.OURS, "running", "revoked", "waits", "another's"), Step.DELETE),
        ((PodUpdate.OURS, "running", "unknown", "waits", "another's"), Step.DELETE),
    ],
)
def test_what_becomes_of_it(heard: tuple[PodUpdate, str, str], step: Step) -> None:
    assert judge(*heard) is step


def test_what_is_taken_back_was_not_revoked_and_its_replacement_waits() -> None:
    heard = product(PodUpdate, PODS, LAUNCHES, REPLACEMENTS, ("ours", "another's"))
    taken = [item for item in heard if judge(*item) is Step.TAKE_BACK]
    update, pods, launches, replacements, _ = map(set, zip(*taken, strict=True))
    assert update == {PodUpdate.SEEN, PodUpdate.NOT_DELETED, PodUpdate.OURS}
    assert pods == {*PODS} - {"pending", "deleted", "succeeded, deleted"}
    assert launches == {"given up", "cancelled", "seen"}
    assert replacements == {"waits"}
