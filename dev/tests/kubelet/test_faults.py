# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Each fault, as a watch on the API server sees it and as the journal tells it."""

from __future__ import annotations

import pytest

from cluster_lab.faults import scenarios
from cluster_lab.faults.plan import FAULT_ANNOTATION, Fault, FaultRule
from cluster_lab.faults.scenarios import AT_WORK
from cluster_lab.journal import JournalEvent

SLEEP = "import time; print('up'); time.sleep(600)"
WAITING = "Pending base=ContainerCreating"
RUNNING = "Running base=running"
UNKNOWN = "base=ContainerStatusUnknown/137"

# What a watch sees of the first launch, up to and including the last event that the fault brings about.
SEEN = {
    Fault.IMAGE_PULL: [WAITING, "Pending base=ErrImagePull", "Pending base=ImagePullBackOff"],
    Fault.REGISTRY_AWAY: [WAITING, "Pending base=ErrImagePull", "Pending base=ImagePullBackOff"],
    Fault.IMAGE_PULL_RECOVERS: [WAITING, "Pending base=ErrImagePull", "Running base=running"],
    Fault.START_ERROR: [WAITING, "Failed base=StartError/128"],
    Fault.CONTAINER_STATUS_UNKNOWN: [WAITING, f"Failed {UNKNOWN}"],
    Fault.EVICTED: [WAITING, f"Failed Evicted {UNKNOWN} TerminationByKubelet"],
    Fault.DRAIN: [
        WAITING,
        "Running base=running",
        "Running base=running EvictionByEvictionAPI",
        "Running base=running EvictionByEvictionAPI deleting",
        "Failed base=Error/143 EvictionByEvictionAPI deleting",
        "gone: Failed base=Error/143 EvictionByEvictionAPI deleting",
    ],
    Fault.INIT_FAILURE: [WAITING, "Failed git-sync=Error/1 base=ContainerCreating"],
    Fault.DELETED_PENDING: [WAITING, f"{WAITING} deleting", f"gone: {WAITING} deleting"],
    Fault.FORCE_DELETED_STARTING: [
        WAITING,
        "Running base=running",
        "Running base=running deleting",
        "gone: Running base=running deleting",
    ],
    Fault.UNKNOWN_THEN_PODGC: [
        WAITING,
        f"Failed {UNKNOWN}",
        f"Failed {UNKNOWN} DeletionByPodGC",
        f"Failed {UNKNOWN} DeletionByPodGC deleting",
        f"gone: Failed {UNKNOWN} DeletionByPodGC deleting",
    ],
    Fault.FAILED_THEN_CLEANUP: [
        WAITING,
        f"Failed {UNKNOWN}",
        f"Failed {UNKNOWN} deleting",
        f"gone: Failed {UNKNOWN} deleting",
    ],
    Fault.NODE_SHUTDOWN: ["Failed NodeShutdown"],
    Fault.NODE_TERMINATED: [WAITING, f"Failed Terminated {UNKNOWN} TerminationByKubelet"],
    Fault.NODE_LOST: [WAITING, "Failed NodeLost base=ContainerCreating"],
    Fault.UNEXPECTED_ADMISSION: ["Failed UnexpectedAdmissionError"],
    Fault.PROVIDER_FAILED: [WAITING, "Pending ProviderFailed base=ContainerCreating"],
    Fault.WORKER_EXIT: [WAITING, "Running base=running", "Failed base=Error/1"],
    Fault.WORKER_TERMINATED: [WAITING, "Running base=running", "Failed base=Error/143"],
    # A pod without sidecars.
    Fault.SIDECAR_RUNS_ON: [WAITING, "Failed base=StartError/128"],
    Fault.OOM_AT_START: [WAITING, "Running base=running", "Failed base=OOMKilled/137"],
    Fault.VANISH: [WAITING, f"{WAITING} deleting", f"gone: {WAITING} deleting"],
    Fault.PARTITION: [WAITING, f"{WAITING} deleting", f"gone: {WAITING} deleting"],
    Fault.KILL_RUNNING: [WAITING, RUNNING, "Failed base=Error/137"],
    Fault.OOM_RUNNING: [WAITING, RUNNING, "Failed base=OOMKilled/137"],
    Fault.EVICTED_RUNNING: [WAITING, RUNNING, "Failed Evicted base=Error/137 TerminationByKubelet"],
    Fault.NODE_TERMINATED_RUNNING: [
        WAITING,
        RUNNING,
        "Failed Terminated base=Error/143 TerminationByKubelet",
    ],
    Fault.NODE_LOST_RUNNING: [
        WAITING,
        RUNNING,
        "Failed base=running DeletionByPodGC",
        "Failed base=running DeletionByPodGC deleting",
        "gone: Failed base=running DeletionByPodGC deleting",
    ],
    Fault.NODE_SILENT_RUNNING: [WAITING, RUNNING],
    Fault.PARTITION_RUNNING: [WAITING, RUNNING, f"{RUNNING} deleting", f"gone: {RUNNING} deleting"],
}
RUNS_A_PROCESS = {Fault.IMAGE_PULL_RECOVERS, Fault.PARTITION}


@pytest.fixture(autouse=True)
def short_back_off(monkeypatch):
    monkeypatch.setattr(scenarios, "BACK_OFF_AFTER_SECONDS", 0.1)


@pytest.mark.parametrize("fault", sorted({*Fault} - {*AT_WORK}))
async def test_the_fault_as_it_is_seen(start_cluster, fault):
    async with start_cluster(FaultRule(task_id="load", fault=fault, delay=0.3)) as cluster:
        name = await cluster.create("load", SLEEP)
        await cluster.until_seen(name, SEEN[fault][-1])
        assert cluster.history(name) == SEEN[fault]
        await cluster.until_journaled(name, JournalEvent.FAULT_INJECTED)
        if SEEN[fault][-1].startswith("gone:"):
            await cluster.until_journaled(name, JournalEvent.DELETED)
        if fault in RUNS_A_PROCESS:
            # The fault may come before the worker's first line.
            await cluster.until_journaled(name, JournalEvent.STARTED)

        events = cluster.journal_events(name)
        assert events[0] == "bound"
        assert events.count("fault-injected") == 1
        assert ("started" in events) is (fault in RUNS_A_PROCESS)
        assert {entry.fault for entry in cluster.journal(name)} == {fault}


@pytest.mark.parametrize("fault", AT_WORK)
async def test_a_fault_that_is_asked_for_while_the_worker_runs(start_cluster, fault):
    async with start_cluster() as cluster:
        name = await cluster.create("load", SLEEP)
        await cluster.until_logged(name, "up")
        await cluster.until_seen(name, RUNNING)
        await cluster.change(name, {"metadata": {"annotations": {FAULT_ANNOTATION: fault}}})
        await cluster.until_seen(name, SEEN[fault][-1])
        assert cluster.history(name) == SEEN[fault]
        await cluster.until_journaled(name, JournalEvent.FAULT_INJECTED)
        assert [entry.fault for entry in cluster.journal(name)][-1] == fault


async def test_a_worker_may_finish_while_its_node_shuts_down(start_cluster):
    finishes = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"
        "print('up'); time.sleep(600)"
    )
    async with start_cluster() as cluster:
        name = await cluster.create("load", finishes)
        await cluster.until_logged(name, "up")
        fault = {FAULT_ANNOTATION: Fault.NODE_TERMINATED_RUNNING}
        await cluster.change(name, {"metadata": {"annotations": fault}})
        await cluster.until_seen(name, "Failed Terminated base=Completed/0 TerminationByKubelet")


async def test_a_node_that_is_silent_has_no_pod_that_is_ready_and_confirms_no_deletion(start_cluster):
    script = "import time; print('up')\nwhile True: time.sleep(0.05); print('alive')"
    async with start_cluster() as cluster:
        name = await cluster.create("load", script)
        await cluster.until_logged(name, "alive")
        fault = {FAULT_ANNOTATION: Fault.NODE_SILENT_RUNNING}
        await cluster.change(name, {"metadata": {"annotations": fault}})
        await cluster.until(
            f"{name} is not ready",
            lambda: cluster.conditions(name).get("Ready") == ("False", None),
            lambda: cluster.conditions(name),
        )
        assert cluster.conditions(name)["ContainersReady"] == ("True", None)
        await cluster.delete(name)
        await cluster.until_seen(name, f"{RUNNING} deleting")
        said = cluster.log(name)
        await cluster.delete(name, 0)
        await cluster.until_journaled(name, JournalEvent.DELETED)
        assert cluster.log(name) == said
        assert "exited" not in cluster.journal_events(name)
