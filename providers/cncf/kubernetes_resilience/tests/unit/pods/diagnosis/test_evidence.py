# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the rules of a policy get to see of a pod."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import classify, make_evidence
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    PodFailure,
    find_failure,
    find_silent_exit,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow_resilience.retry_policy.evidence import ConditionEvidence, ContainerEvidence, Evidence, Phase

from ....support import manifests as m
from ....support.pod_fixtures import read_fixture


def evidence_of(failure: PodFailure | None, phase: Phase = Phase.LAUNCH) -> Evidence:
    assert failure is not None
    return make_evidence(failure, classify(failure), phase)


def test_eviction_shows_the_words_of_pod_and_condition_beside_those_of_the_container() -> None:
    pod = read_fixture("evicted-by-memory-pressure")
    evidence = evidence_of(pod.failure, Phase.EXECUTION)
    assert evidence.phase is Phase.EXECUTION
    assert evidence.context == classify(pod.failure).context
    assert evidence.reasons == ("Evicted", "TerminationByKubelet")
    assert evidence.message == pod.facts.message
    assert evidence.containers == (ContainerEvidence(name="base", exit_code=137, reason="Error"),)
    assert evidence.deciding_container == "base"
    assert (
        ConditionEvidence(type="DisruptionTarget", status="True", reason="TerminationByKubelet")
        in evidence.conditions
    )
    assert not evidence.exited_by_itself


REASONS = [
    ("git-sync-dns", ()),
    ("worker-failed", ()),
    ("drained-before-start", ("EvictionByEvictionAPI", "Deleted")),
    ("disruption-withdrawn", ()),
    ("deleted-with-grace", ("Deleted",)),
    ("vanished", ("Deleted",)),
    ("deletion-overdue", ("DeletionOverdue", "Deleted")),
    ("exited-without-starting", ("ExitedWithoutStarting",)),
    ("unschedulable-resources", ("Unschedulable",)),
    ("refused-out-of-cpu", ("OutOfcpu",)),
    ("unknown", ()),
]


@pytest.mark.parametrize(("name", "reasons"), REASONS)
def test_reasons_are_those_of_the_pod_and_ours_without_those_of_its_containers(
    name: str, reasons: tuple[str, ...]
) -> None:
    assert evidence_of(read_fixture(name).failure).reasons == reasons


CONTAINERS = [
    (
        "worker-failed-beside-sidecars",
        [("sql-proxy", True, 143), ("statsd", False, 2), ("base", False, 1)],
        "base",
    ),
    (
        "second-init-container-failed",
        [("migrate-check", True, 1), ("base", False, None), ("statsd", False, None)],
        "migrate-check",
    ),
    ("native-sidecar-crash-loop", [("sql-proxy", True, None), ("base", False, None)], "sql-proxy"),
    (
        "init-container-running",
        [("git-sync", True, None), ("migrate-check", True, None), ("base", False, None)],
        "git-sync",
    ),
    ("exited-without-starting", [("base", False, 0)], "base"),
    ("worker-failed", [("base", False, 1)], "base"),
    ("node-gone", [], None),
]


@pytest.mark.parametrize(("name", "containers", "deciding"), CONTAINERS)
def test_containers_are_those_that_failed_or_waited_and_the_one_that_decides(
    name: str, containers: list[tuple[str, bool, int | None]], deciding: str | None
) -> None:
    evidence = evidence_of(read_fixture(name).failure)
    assert [(item.name, item.is_init, item.exit_code) for item in evidence.containers] == containers
    assert evidence.deciding_container == deciding


def test_container_keeps_its_reason_and_its_whole_message() -> None:
    failure = find_failure(read_pod(m.pod("Failed", [m.base(m.terminated(128, "StartError", "x" * 5000))])))
    (container,) = evidence_of(failure).containers
    assert (container.reason, container.message) == ("StartError", "x" * 5000)


def test_message_of_a_condition_stands_in_for_that_of_the_pod() -> None:
    message = evidence_of(read_fixture("drained-before-start").failure).message
    assert message == "Eviction API: evicting"
    assert evidence_of(read_fixture("worker-failed").failure).message is None


@pytest.mark.parametrize(
    ("failure", "by_itself"),
    [
        (read_fixture("worker-failed").failure, True),
        (read_fixture("worker-terminated").failure, False),
        (read_fixture("worker-killed-signal").failure, False),
        (read_fixture("worker-crashed").failure, True),
        (read_fixture("worker-out-of-memory").failure, True),
        (read_fixture("exited-without-starting").failure, True),
        (read_fixture("drained-with-good-exit").failure, False),
        (read_fixture("deleted-with-grace").failure, False),
        (read_fixture("evicted-over-emptydir-limit").failure, False),
        (read_fixture("git-sync-dns").failure, False),
        (read_fixture("image-name-invalid").failure, False),
        (PodFailure(DELETION_OVERDUE, read_pod(m.pod(deleted=True)), alive=True), False),
        (find_silent_exit(read_pod(m.succeeded())), True),
    ],
)
def test_worker_exited_by_itself_if_nobody_had_asked_for_it(failure: PodFailure, by_itself: bool) -> None:
    assert evidence_of(failure).exited_by_itself is by_itself
