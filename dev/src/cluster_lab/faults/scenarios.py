# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What becomes of a pod, normally and by each fault: the statuses and deletions that an API server sees.

Where a fault kills a worker before it reports to Airflow, no process is started at all: a real one could be
faster than the fault, and the fault would then hit a running task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain, repeat

from cluster_lab.faults.plan import Fault, FaultRule
from cluster_lab.journal import JournalEvent
from cluster_lab.kubelet.pod import PodRun, Scenario
from cluster_lab.kubelet.process import WorkerProcess
from cluster_lab.kubelet.status import EXIT_SIGKILL, EXIT_SIGTERM, LOST_CONTAINER

BACK_OFF_AFTER_SECONDS = 2.0
"""How long ErrImagePull is shown before it becomes ImagePullBackOff."""

PULL_AGAIN_AFTER_SECONDS = (10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""
How long that is shown before the next attempt, the last one for ever.

.. seealso:: https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff
"""

_Play = Callable[[PodRun, float], Awaitable[None]]


def scenario_for(rule: FaultRule) -> Scenario:
    """Return the scenario of a rule's fault, with its delay."""
    play = _SCENARIOS[rule.fault]

    async def scenario(run: PodRun) -> None:
        await play(run, rule.effective_delay)

    return scenario


async def run_normally(run: PodRun) -> None:
    """Play the life of a pod to which nothing happens: Pending, Running, then as the worker process ends."""
    await _prepare(run)
    await run.run_worker()


async def _prepare(run: PodRun) -> None:
    """Report the pod as accepted, and its init containers (simulated, they succeed at once) as done."""
    await run.report()
    if run.status.has_init_containers:
        run.status.initialize()
        await run.report()


NOT_FOUND = "failed to pull and unpack image: manifest unknown"
REGISTRY_AWAY = "failed to pull and unpack image: failed to do request: dial tcp 10.0.0.9:443: i/o timeout"
"""What containerd says of an image that it cannot pull, without the image's name."""


async def _image_pull(run: PodRun, delay: float, *, message: str = NOT_FOUND) -> None:
    await _begin(run, delay)
    for pause in chain(PULL_AGAIN_AFTER_SECONDS, repeat(PULL_AGAIN_AFTER_SECONDS[-1])):
        await _report_pull_error(run, message)
        await asyncio.sleep(BACK_OFF_AFTER_SECONDS)
        run.status.wait("ImagePullBackOff", "Back-off pulling image")
        await run.report()
        await asyncio.sleep(pause)


async def _image_pull_recovers(run: PodRun, delay: float) -> None:
    await _begin(run, 0)
    await _report_pull_error(run, NOT_FOUND)
    await run.pause(delay)
    await run.run_worker()


async def _report_pull_error(run: PodRun, message: str) -> None:
    run.status.wait("ErrImagePull", message)
    await run.report()


async def _end_container(
    run: PodRun, delay: float, *, exit_code: int, reason: str, message: str | None = None, starts: bool = True
) -> None:
    """The worker container ends; ``starts`` says whether it was reported as running before."""
    await _begin(run, delay)
    if starts:
        run.status.run()
        await run.report()
    run.status.end_worker(exit_code, reason, message)
    await run.report()


async def _leave_sidecars(run: PodRun, delay: float) -> None:
    await _begin(run, delay)
    run.status.run()
    run.status.end_worker(128, "StartError", "failed to create containerd task: no such file", alone=True)
    await run.report()


_lose_container = partial(
    _end_container,
    exit_code=EXIT_SIGKILL,
    reason="ContainerStatusUnknown",
    message=LOST_CONTAINER,
    starts=False,
)


async def _fail_pod(
    run: PodRun, delay: float, *, reason: str, message: str, disruption: str | None = None, ended: bool = True
) -> None:
    """The pod fails as a whole; ``ended`` says whether its containers get a final state too."""
    await _begin(run, delay)
    if ended:
        run.status.end_rest()
    run.status.fail_pod(reason, message)
    if disruption:
        run.status.disrupt(disruption, message)
    await run.report()


async def _reject(run: PodRun, delay: float, *, reason: str, message: str) -> None:
    """The kubelet does not take the pod in: there are no statuses of containers."""
    await run.pause(delay)
    run.record(JournalEvent.FAULT_INJECTED)
    run.status.is_rejected = True
    run.status.fail_pod(reason, message)
    await run.report()


async def _provider_failed(run: PodRun, delay: float) -> None:
    await _begin(run, delay)
    run.status.reason, run.status.message = "ProviderFailed", "the provider could not create the pod"
    await run.report()


async def _fail_init(run: PodRun, delay: float) -> None:
    await run.report()
    await run.pause(delay)
    run.record(JournalEvent.FAULT_INJECTED)
    run.status.fail_init()
    await run.report()


async def _take_away(
    run: PodRun, delay: float, *, starts: bool = False, evicted: bool = False, grace: int | None = 0
) -> None:
    """Somebody deletes the pod; ``starts`` says whether its containers were reported as running before."""
    await _prepare(run)
    await run.pause(delay)
    if starts:
        run.status.run()
        await run.report()
    run.record(JournalEvent.FAULT_INJECTED)
    if evicted:
        # As the eviction API does, whose condition is newer than the oldest API server supported.
        run.status.disrupt("EvictionByEvictionAPI", "Eviction API: evicting")
        await run.report()
    # As with kubelets before 1.27, the last that is seen of a pod that never ran is its phase Pending.
    run.silent_end = not starts
    await run.delete(grace)


async def _partition(run: PodRun, delay: float) -> None:
    await _begin(run, 0)
    run.partitioned = True
    await run.delete(0)
    await asyncio.sleep(delay)
    await run.run_worker()


async def _unknown_then_podgc(run: PodRun, delay: float) -> None:
    await _lose_container(run, 0)
    await run.pause(delay)
    async with run.node.removed():
        # In the way of the pod garbage collector, which itself would take the node's other pods too.
        run.status.disrupt("DeletionByPodGC", "PodGC: node no longer exists")
        await run.report()
        await run.delete(0)


async def _failed_then_cleanup(run: PodRun, delay: float) -> None:
    await _lose_container(run, 0)
    await run.pause(delay)
    await run.delete()


async def _end_running(
    run: PodRun,
    *,
    reason: str | None = None,
    pod_reason: str | None = None,
    message: str = "",
    graceful: bool = False,
) -> None:
    """
    The kubelet ends a worker that runs.

    :param reason: of the container; by default ``Error``
    :param pod_reason: of the pod, if it fails for the node's sake; ``message`` is what it says then
    :param graceful: whether the worker has its grace period
    """
    process = _at_work(run)
    if graceful:
        await run.stop_worker()
    process.kill()
    run.worker_ended(await process.wait(), reason)
    if pod_reason:
        run.status.fail_pod(pod_reason, message)
        run.status.disrupt("TerminationByKubelet", message)
    await run.report()


async def _lose_node_running(run: PodRun) -> None:
    process = _at_work(run)
    process.kill()
    await process.wait()
    async with run.node.removed():
        # To the end, the container is what the kubelet last said of it.
        run.status.phase = "Failed"
        run.status.disrupt("DeletionByPodGC", "PodGC: node no longer exists")
        await run.report()
        await run.delete(0)


async def _silence_node_running(run: PodRun) -> None:
    process = _at_work(run)
    process.suspend()
    # In the way of the node controller: it has no say here over single pods of a node.
    run.status.node_is_silent = True
    await run.report()
    run.partitioned = True
    await process.wait()


async def _partition_running(run: PodRun) -> None:
    _at_work(run)
    run.partitioned = True
    await run.delete(0)
    await run.await_worker()


def _at_work(run: PodRun) -> WorkerProcess:
    """Return the worker, which meets its fault now."""
    assert run.process is not None
    run.record(JournalEvent.FAULT_INJECTED)
    return run.process


async def _begin(run: PodRun, delay: float) -> None:
    """Leave the pod Pending for a while, and note that it meets its fault."""
    await _prepare(run)
    await run.pause(delay)
    run.record(JournalEvent.FAULT_INJECTED)


_SCENARIOS: dict[Fault, _Play] = {
    Fault.IMAGE_PULL: _image_pull,
    Fault.REGISTRY_AWAY: partial(_image_pull, message=REGISTRY_AWAY),
    Fault.IMAGE_PULL_RECOVERS: _image_pull_recovers,
    Fault.START_ERROR: partial(
        _end_container,
        exit_code=128,
        reason="StartError",
        message="failed to create containerd task: exec: no such file or directory",
        starts=False,
    ),
    Fault.CONTAINER_STATUS_UNKNOWN: _lose_container,
    Fault.EVICTED: partial(
        _fail_pod,
        reason="Evicted",
        message="The node was low on resource: memory.",
        disruption="TerminationByKubelet",
    ),
    Fault.DRAIN: partial(_take_away, starts=True, evicted=True, grace=None),
    Fault.INIT_FAILURE: _fail_init,
    Fault.DELETED_PENDING: partial(_take_away, grace=None),
    Fault.FORCE_DELETED_STARTING: partial(_take_away, starts=True),
    Fault.UNKNOWN_THEN_PODGC: _unknown_then_podgc,
    Fault.FAILED_THEN_CLEANUP: _failed_then_cleanup,
    Fault.NODE_SHUTDOWN: partial(
        _reject,
        reason="NodeShutdown",
        message="Pod was rejected as the node is shutting down.",
    ),
    Fault.NODE_TERMINATED: partial(
        _fail_pod,
        reason="Terminated",
        message="Pod was terminated in response to imminent node shutdown.",
        disruption="TerminationByKubelet",
    ),
    Fault.NODE_LOST: partial(
        _fail_pod,
        reason="NodeLost",
        message="Node which was running the pod is unresponsive",
        ended=False,
    ),
    Fault.UNEXPECTED_ADMISSION: partial(
        _reject,
        reason="UnexpectedAdmissionError",
        message="Allocate failed due to no healthy devices present, which is unexpected",
    ),
    Fault.PROVIDER_FAILED: _provider_failed,
    Fault.WORKER_EXIT: partial(_end_container, exit_code=1, reason="Error"),
    Fault.WORKER_TERMINATED: partial(_end_container, exit_code=EXIT_SIGTERM, reason="Error"),
    Fault.SIDECAR_RUNS_ON: _leave_sidecars,
    Fault.OOM_AT_START: partial(_end_container, exit_code=EXIT_SIGKILL, reason="OOMKilled"),
    Fault.VANISH: _take_away,
    Fault.PARTITION: _partition,
}

AT_WORK: dict[Fault, Scenario] = {
    Fault.KILL_RUNNING: _end_running,
    Fault.OOM_RUNNING: partial(_end_running, reason="OOMKilled"),
    Fault.EVICTED_RUNNING: partial(
        _end_running,
        pod_reason="Evicted",
        message="The node was low on resource: memory.",
    ),
    Fault.NODE_TERMINATED_RUNNING: partial(
        _end_running,
        pod_reason="Terminated",
        message="Pod was terminated in response to imminent node shutdown.",
        graceful=True,
    ),
    Fault.NODE_LOST_RUNNING: _lose_node_running,
    Fault.NODE_SILENT_RUNNING: _silence_node_running,
    Fault.PARTITION_RUNNING: _partition_running,
}
"""What happens to a worker that runs."""
