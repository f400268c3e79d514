# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Whether a pod has failed, how, and which of its containers decided that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    PodFailure,
    find_failure,
    find_obstacle,
    find_silent_exit,
    find_unschedulable,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import MESSAGE_LIMIT
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod

from ....support import manifests as m
from ....support.pod_fixtures import GIVEN_UP, read_fixture


def failure_of(manifest: m.Json, *, gone: bool = False, given_up: Any = GIVEN_UP) -> PodFailure:
    failure = find_failure(read_pod(manifest), gone=gone, given_up_reasons=given_up)
    assert failure is not None
    return failure


def ended_at(time: str) -> m.Json:
    return m.terminated(1, "Error", finishedAt=time)


@dataclass(frozen=True)
class Fault:
    """One way to die and what is to be read from it."""

    manifest: m.Json
    reason: str
    container: str | None = "base"
    exit_code: int | None = None
    gone: bool = False
    deleted: bool = False
    alive: bool = False
    lingers: bool = False
    by_itself: bool = False
    """Whether the worker ended, and nobody outside of it had asked for that."""


FAULTS = {
    # The worker container.
    "runtime cannot start the container": Fault(m.start_error(), "StartError", exit_code=128, by_itself=True),
    "container is lost": Fault(m.status_unknown(), "ContainerStatusUnknown", exit_code=137, by_itself=True),
    "its exit code is lost": Fault(m.worker_error(-1), "Error", exit_code=-1),
    "out of memory": Fault(m.out_of_memory(), "OOMKilled", exit_code=137, by_itself=True),
    "worker exits on its own": Fault(m.worker_error(), "Error", exit_code=1, by_itself=True),
    "killed, and nobody says by whom": Fault(m.worker_error(137), "Error", exit_code=137),
    "told to go, and nobody says by whom": Fault(m.worker_error(143), "Error", exit_code=143),
    "killed, and no reason either": Fault(
        m.pod("Failed", [m.base(m.terminated(137))]), "Failed", exit_code=137
    ),
    "crashed": Fault(m.worker_error(139), "Error", exit_code=139, by_itself=True),
    "exit code without a reason": Fault(
        m.pod("Failed", [m.base(m.terminated(3))]), "Failed", exit_code=3, by_itself=True
    ),
    "reason without an exit code": Fault(
        m.pod("Failed", [m.base({"terminated": {"reason": "Error"}})]), "Error", by_itself=True
    ),
    # Other containers.
    "init container fails": Fault(m.init_error(), "Error", "git-sync", 1),
    "sidecar fails beside a worker that completed": Fault(m.sidecar_error(), "Error", "statsd", 2),
    # The pod as a whole.
    "evicted before any container": Fault(m.evicted(), "Evicted", None),
    "evicted by the kubelet": Fault(m.evicted_by_kubelet(), "Evicted", exit_code=137),
    "node shuts down": Fault(m.node_shutdown(), "NodeShutdown", exit_code=143),
    "node is lost": Fault(m.node_lost(), "NodeLost", None),
    "not admitted by the kubelet": Fault(m.not_admitted(), "UnexpectedAdmissionError", None),
    "active for too long": Fault(m.deadline_exceeded(), "DeadlineExceeded", exit_code=137),
    "failed without another word": Fault(m.pod("Failed"), "Failed", None),
    "virtual kubelet gives up": Fault(m.provider_failed("Failed"), "ProviderFailed", None),
    "virtual kubelet gives up, for now": Fault(
        m.provider_failed("Pending"), "ProviderFailed", None, alive=True
    ),
    # Disruptions: the container's own words are Error and 143 or 137.
    "drained": Fault(
        m.disrupted("EvictionByEvictionAPI"), "EvictionByEvictionAPI", exit_code=143, deleted=True
    ),
    "preempted": Fault(
        m.disrupted("PreemptionByScheduler", 137), "PreemptionByScheduler", exit_code=137, deleted=True
    ),
    "evicted by a taint": Fault(
        m.disrupted("DeletionByTaintManager"), "DeletionByTaintManager", exit_code=143, deleted=True
    ),
    "removed by the garbage collector": Fault(
        m.pod("Failed", [m.base(m.running())], conditions=(m.disruption("DeletionByPodGC"),)),
        "DeletionByPodGC",
        None,
        gone=True,
    ),
    "disruption without a reason": Fault(
        m.pod("Failed", [m.base(m.terminated(143, "Error"))], conditions=(m.disruption(None),)),
        "Error",
        exit_code=143,
    ),
    # Deletions that nothing but the deletion explains.
    "deleted while it waits for a node": Fault(m.unscheduled(), "Deleted", None, gone=True, deleted=True),
    "deleted while its container is created": Fault(m.starting(), "Deleted", None, gone=True, deleted=True),
    "force-deleted as its container starts": Fault(m.alive(), "Deleted", None, gone=True, deleted=True),
    "deleted with grace, and the worker ends by SIGTERM": Fault(
        m.pod("Failed", [m.base(m.terminated(143, "Error"))], deleted=True),
        "Error",
        exit_code=143,
        deleted=True,
    ),
    "vanished with its node": Fault(
        m.pod("Unknown", [m.base(m.running())]), "Deleted", None, gone=True, deleted=True
    ),
    "drained while Pending": Fault(
        m.pod(containers=[m.base(m.CREATING)], conditions=(m.disruption("EvictionByEvictionAPI"),)),
        "EvictionByEvictionAPI",
        None,
        gone=True,
        deleted=True,
    ),
    # The worker has failed, and a sidecar runs on.
    "worker fails beside a sidecar that runs on": Fault(
        m.lingering(), "Error", exit_code=1, by_itself=True, lingers=True
    ),
    "worker fails beside a sidecar that cannot start": Fault(
        m.lingering(phase="Pending", sidecar=m.waiting("ErrImagePull")),
        "Error",
        exit_code=1,
        by_itself=True,
        lingers=True,
    ),
    "worker fails as its pod is deleted, and a sidecar runs on": Fault(
        m.lingering(m.terminated(143, "Error"), deleted=True),
        "Error",
        exit_code=143,
        deleted=True,
        lingers=True,
    ),
    "worker had failed when the pod was removed": Fault(
        m.lingering(), "Error", exit_code=1, gone=True, by_itself=True
    ),
    # Given up on while Pending.
    "image cannot be pulled": Fault(m.image_pull_error(), "ErrImagePull", alive=True),
    "secret for the environment is missing": Fault(
        m.image_pull_error("CreateContainerConfigError", 'secret "db" not found'),
        "CreateContainerConfigError",
        alive=True,
    ),
    "image of an init container cannot be pulled": Fault(
        m.pod(
            containers=[m.base(m.PREPARING)],
            init=[m.status_of("git-sync", m.waiting("ErrImagePull", "manifest unknown"))],
        ),
        "ErrImagePull",
        "git-sync",
        alive=True,
    ),
    "image of a native sidecar cannot be pulled": Fault(
        m.pod(
            containers=[m.base(m.PREPARING)],
            init=[m.status_of("proxy", m.waiting("ErrImagePull", "manifest unknown"))],
            native_sidecars=("proxy",),
        ),
        "ErrImagePull",
        "proxy",
        alive=True,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_fault_is_recognised(fault: Fault) -> None:
    failure = failure_of(fault.manifest, gone=fault.gone)
    container = failure.container
    assert failure.reason == fault.reason
    assert (container.name if container else None) == fault.container
    assert (container.exit_code if container else None) == fault.exit_code
    assert (failure.deleted, failure.alive) == (fault.deleted, fault.alive)
    assert failure.lingers is fault.lingers
    assert failure.worker_exited_by_itself is fault.by_itself
    line = str(failure)
    told = [f"airflow/{m.NAME}", failure.facts.node or "no node", fault.reason, fault.container or ""]
    assert all(part in line for part in told), line
    assert fault.exit_code is None or f"exit code {fault.exit_code}" in line
    assert "None" not in line
    assert "\n" not in line


# ---------------------------------------------------------------------------------------------- not a failure

ALIVE = {
    "waits for a node": m.unscheduled(),
    "container is created": m.starting(),
    "runs": m.alive(),
    "succeeded": m.succeeded(),
    "node does not answer": m.pod("Unknown", [m.base(m.running())]),
    "deletion is asked for": m.pod("Running", [m.base(m.running())], deleted=True),
    "disruption is announced": m.pod("Running", conditions=(m.disruption("PreemptionByScheduler"),)),
    "phase of a later Kubernetes": m.pod("Melting", [m.base(m.terminated(1, "Error"))]),
    "no status yet": m.pod() | {"status": None},
    "another reason to wait": m.image_pull_error("ImagePullBackOff"),
    "kubelet throttles its pulls": m.image_pull_error(message="pull QPS exceeded"),
    "kubelet throttles its pulls, in the words of later ones": m.image_pull_error(
        message='Back-off pulling image "a": ErrImagePull: pull QPS exceeded'
    ),
    "image of an ordinary sidecar cannot be pulled": m.pod(
        containers=[m.base(m.CREATING), m.status_of("statsd", m.waiting("ErrImagePull", "unknown"))]
    ),
    "worker is started again": m.lingering(restart_policy="OnFailure"),
    "worker completed beside a sidecar that runs on": m.lingering(m.COMPLETED),
    "node of a worker that failed does not answer": m.lingering(phase="Unknown"),
    "fatal reason, but the pod runs": m.pod("Running", [m.base(m.waiting("ErrImagePull"))]),
}


@pytest.mark.parametrize("manifest", ALIVE.values(), ids=ALIVE.keys())
def test_pod_that_may_still_succeed_has_not_failed(manifest: m.Json) -> None:
    assert find_failure(read_pod(manifest), given_up_reasons=GIVEN_UP) is None


def test_nothing_is_given_up_on_unless_configured() -> None:
    assert find_failure(read_pod(m.image_pull_error())) is None


def test_throttled_container_does_not_hide_one_that_is_given_up_on() -> None:
    throttled = m.status_of("git-sync", m.waiting("ErrImagePull", "pull QPS exceeded"))
    manifest = m.pod(containers=[m.base(m.waiting("ErrImagePull", "manifest unknown"))], init=[throttled])
    assert failure_of(manifest).container == read_pod(manifest).worker


# ------------------------------------------------------------------------------------ which container decides

FAILS, OK = m.terminated(1, "Error"), m.COMPLETED


@pytest.mark.parametrize(
    ("init", "worker", "sidecar", "decides"),
    [
        (FAILS, m.PREPARING, m.PREPARING, "git-sync"),
        (FAILS, m.terminated(137, "ContainerStatusUnknown"), FAILS, "git-sync"),
        (OK, FAILS, FAILS, "base"),
        (OK, FAILS, OK, "base"),
        (OK, OK, FAILS, "statsd"),
        (OK, m.CREATING, FAILS, "statsd"),
        (OK, OK, OK, None),
        (m.running(), m.PREPARING, m.PREPARING, None),
    ],
)
@pytest.mark.parametrize("worker_first", [True, False])
def test_container_that_kept_the_worker_from_starting_decides(
    init: m.Json, worker: m.Json, sidecar: m.Json, decides: str | None, worker_first: bool
) -> None:
    statuses = [m.base(worker), m.status_of("statsd", sidecar)]
    ordered = statuses if worker_first else statuses[::-1]
    container = failure_of(m.pod("Failed", ordered, init=[m.status_of("git-sync", init)])).container
    assert (container.name if container else None) == decides


@pytest.mark.parametrize(("worker", "decides"), [(m.PREPARING, "proxy"), (OK, "proxy"), (FAILS, "base")])
def test_native_sidecar_decides_after_the_worker(worker: m.Json, decides: str) -> None:
    # It is stopped after the worker has ended, and then often with a code of its own.
    init = [m.status_of("proxy", m.terminated(143, "Error"))]
    failure = failure_of(m.pod("Failed", [m.base(worker)], init=init, native_sidecars=("proxy",)))
    assert failure.container.name == decides


LATER = [
    # Of equals, the first that ended; without times, the first in the list.
    (("statsd", "08:00:40"), ("shipper", "08:00:30"), "shipper"),
    (("statsd", "08:00:30"), ("shipper", "08:00:30"), "statsd"),
    (("statsd", None), ("shipper", "08:00:30"), "shipper"),
    (("statsd", None), ("shipper", None), "statsd"),
]


@pytest.mark.parametrize(("first", "second", "decides"), LATER)
def test_of_two_sidecars_the_one_that_ended_first_decides(
    first: tuple[str, str | None], second: tuple[str, str | None], decides: str
) -> None:
    statuses = [m.base(OK)]
    for name, time in (first, second):
        state = m.terminated(2, "Error")
        state["terminated"]["finishedAt"] = f"2026-03-01T{time}Z" if time else None
        statuses.append(m.status_of(name, state))
    container = failure_of(m.pod("Failed", statuses)).container
    assert container.name == decides


def test_ordinary_sidecar_decides_over_a_native_one_that_ended_before_it() -> None:
    init = [m.status_of("proxy", m.terminated(143, "Error"))]
    statsd = m.terminated(2, "Error", finishedAt="2026-03-01T09:00:00Z")
    statuses = [m.base(OK), m.status_of("statsd", statsd)]
    failure = failure_of(m.pod("Failed", statuses, init=init, native_sidecars=("proxy",)))
    assert failure.container.name == "statsd"


# ------------------------------------------------------------------------------------------ whose fault it is


def test_pod_that_is_given_up_on_while_it_is_deleted_and_drained_says_both() -> None:
    waits = m.waiting("ErrImagePull", "manifest unknown")
    drain = (m.disruption("EvictionByEvictionAPI"),)
    failure = failure_of(m.pod(containers=[m.base(waits)], conditions=drain, deleted=True))
    assert (failure.reason, failure.deleted, failure.disruption is None) == ("ErrImagePull", True, False)


# -------------------------------------------------------------------------------------------------- obstacles

OBSTACLES = [
    ("scheduling-gated", "SchedulingGated", None),
    ("unschedulable-resources", "Unschedulable", None),
    ("refused-by-virtual-kubelet", "ProviderFailed", None),
    ("image-pull-back-off", "ImagePullBackOff", "base"),
    ("image-pull-disk-full", "ErrImagePull", "sql-proxy"),
    ("native-sidecar-crash-loop", "CrashLoopBackOff", "sql-proxy"),
    ("init-container-running", "Pending", "git-sync"),
    ("container-creating", "ContainerCreating", "base"),
]


@pytest.mark.parametrize(("name", "reason", "container"), OBSTACLES)
def test_obstacle_is_what_a_pending_pod_waits_for(name: str, reason: str, container: str | None) -> None:
    failure = find_obstacle(read_fixture(name).facts)
    assert (failure.reason, failure.alive) == (reason, True)
    assert (failure.container.name if failure.container else None) == container


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_native_sidecar_that_runs_and_init_container_that_completed_are_no_obstacles(phase: str) -> None:
    init = [m.status_of("git-sync", OK), m.status_of("proxy", m.running())]
    failure = find_obstacle(
        read_pod(m.pod(phase, [m.base(m.CREATING)], init=init, native_sidecars=("proxy",)))
    )
    assert failure.container == failure.facts.worker


def test_a_worker_that_runs_is_not_given_up_for_a_native_sidecar_that_is_restarted() -> None:
    containers = [m.base(m.running()), m.status_of("statsd", m.waiting("ImagePullBackOff"))]
    init = [m.status_of("proxy", m.waiting("CrashLoopBackOff"))]
    manifest = m.pod("Pending", containers, init=init, native_sidecars=("proxy",))
    assert find_failure(read_pod(manifest), given_up_reasons=["CrashLoopBackOff"]) is None


# ------------------------------------------------------------------------------------------- special failures


def test_pod_without_a_node_is_explained_by_its_condition() -> None:
    failure = find_unschedulable(read_fixture("unschedulable-resources").facts)
    assert (failure.reason, failure.alive, failure.container) == ("Unschedulable", True, None)
    assert "Insufficient" in (failure.condition.message or "")


@pytest.mark.parametrize("manifest", [m.gated(), m.starting(), m.alive(), m.pod("Failed", node=None)])
def test_no_other_pod_is_unschedulable(manifest: m.Json) -> None:
    assert find_unschedulable(read_pod(manifest)) is None


def test_overdue_deletion_keeps_the_disruption_and_the_pod_counts_as_alive() -> None:
    manifest = m.pod(
        "Running", [m.base(m.running())], conditions=(m.disruption("DeletionByTaintManager"),), deleted=True
    )
    failure = PodFailure(DELETION_OVERDUE, read_pod(manifest), alive=True)
    assert (failure.reason, failure.deleted, failure.alive) == ("DeletionOverdue", True, True)
    assert not failure.worker_exited_by_itself
    assert "disruption DeletionByTaintManager" in str(failure)


def test_worker_that_exits_well_without_having_started_its_task_failed() -> None:
    failure = find_silent_exit(read_pod(m.succeeded()))
    assert (failure.reason, failure.alive) == ("ExitedWithoutStarting", False)
    assert failure.worker_exited_by_itself
    assert "container reason Completed, exit code 0" in str(failure)


def test_worker_that_was_told_to_go_before_its_task_began_did_not_exit_by_itself() -> None:
    failure = find_silent_exit(read_fixture("drained-with-good-exit").facts)
    assert (failure.deleted, failure.worker_exited_by_itself) == (True, False)
    assert failure.disruption is not None


# --------------------------------------------------------------------------------------------------- the line


LINES = [
    (
        m.init_error(),
        "reason Error",
        "init container git-sync terminated",
        "exit code 1",
        "message 'fatal: unable to access the repository'",
    ),
    (
        m.evicted_by_kubelet(),
        "reason Evicted",
        "worker container base terminated",
        "container reason Error",
        "exit code 137",
        "disruption TerminationByKubelet",
        "message 'The node was low on resource: ephemeral-storage.'",
    ),
    (
        m.disrupted("PreemptionByScheduler"),
        "reason PreemptionByScheduler",
        "worker container base terminated",
        "container reason Error",
        "exit code 143",
    ),
    (
        m.image_pull_error(),
        "reason ErrImagePull",
        "worker container base waiting",
        "message 'manifest unknown'",
    ),
]


@pytest.mark.parametrize(("manifest", "parts"), [(manifest, parts) for manifest, *parts in LINES])
def test_line_says_everything_once(manifest: m.Json, parts: list[str]) -> None:
    assert str(failure_of(manifest)) == f"pod airflow/{m.NAME} on node node-1: {', '.join(parts)}"


@pytest.mark.parametrize(
    "manifest",
    [
        m.pod("Failed", [m.base(m.terminated(128, "StartError", "x" * 5000))]),
        m.pod("Failed", reason="Evicted", message="x" * 5000),
    ],
)
def test_long_messages_are_cut(manifest: m.Json) -> None:
    line = str(failure_of(manifest))
    assert "x" * MESSAGE_LIMIT + "…" in line
    assert line.count("x") < MESSAGE_LIMIT + 100
