# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
One pod on a node, from its binding to its end.

A *scenario* plays the life of the pod through the methods of :class:`PodRun`; a scenario may end with the
pod in a final phase, or never. Deletion is handled here, the same way for every scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from cluster_lab.apiserver.patches import STRATEGIC_MERGE
from cluster_lab.client import ApiError, JsonObject
from cluster_lab.journal import JournalEvent
from cluster_lab.kubelet.process import WorkerProcess
from cluster_lab.kubelet.status import EXIT_SIGTERM, WORKER_CONTAINER, PodStatus

if TYPE_CHECKING:
    from cluster_lab.kubelet.kubelet import Kubelet

log = logging.getLogger(__name__)

GO_ON_ANNOTATION = "cluster-lab/go-on"
"""On a pod whose fault waits for its delay: the delay is over."""

Scenario = Callable[["PodRun"], Awaitable[None]]
Record = Callable[[JournalEvent, int | None], None]
"""Takes a note of an event of one pod; the number is the exit code, where there is one."""


@dataclass(frozen=True, slots=True)
class Admission:
    """How a node is to treat a pod that was bound to it."""

    scenario: Scenario
    record: Record
    requested: Callable[[JsonObject], Scenario | None]
    """Returns what somebody asks for in the pod's manifest, to happen to the worker that runs."""


class PodRun:
    """A pod and its worker process, in the hands of a scenario."""

    def __init__(self, manifest: JsonObject, kubelet: Kubelet) -> None:
        metadata = manifest["metadata"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.node = kubelet.node
        self.status = PodStatus(manifest, self.node.address)
        self.process: WorkerProcess | None = None
        self.partitioned = False
        """The node has no connection to the API server: nothing is reported, and no deletion is noticed."""
        self.silent_end = False
        """A deletion is completed without a last status."""
        self._manifest = manifest
        self._kubelet = kubelet
        self._admission = kubelet.admit(manifest)
        self._directory = kubelet.logs.of_pod(self.namespace, self.name, self.uid)
        self._began = asyncio.get_running_loop().time()
        self._to_be_deleted = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._has_deadline = asyncio.Event()
        self._look_for_deadline(manifest)
        self._playing: asyncio.Task[None]
        self._is_interrupted = False
        self._gone = asyncio.Event()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    # -- what the node sees on its watch

    def update(self, manifest: JsonObject) -> None:
        """Take in the pod as it is now."""
        self._manifest = manifest
        self._look_for_deadline(manifest)
        self._look_for_request(manifest)
        if GO_ON_ANNOTATION in (manifest["metadata"].get("annotations") or {}):
            self._goes_on.set()
        if manifest["metadata"].get("deletionTimestamp"):
            self._to_be_deleted.set()

    def gone(self) -> None:
        """The pod is not in the API any more."""
        self.record(JournalEvent.DELETED)
        self._gone.set()
        self._to_be_deleted.set()

    async def run(self) -> None:
        """Live until the pod is gone, or until cancelled; no process is left in either case."""
        self.record(JournalEvent.BOUND)
        self._playing = asyncio.create_task(self._play(self._admission.scenario))
        deadline = asyncio.create_task(self._keep_to_deadline())
        try:
            await self._to_be_deleted.wait()
            if self.partitioned:
                await self._playing
                return
            await _cancel(deadline)
            await _cancel(self._playing)
            await self._end()
        finally:
            await _cancel(deadline)
            await _cancel(self._playing)
            if self.process is not None:
                self.process.kill()
                await self.process.wait()

    # -- what scenarios do

    def record(self, event: JournalEvent, exit_code: int | None = None) -> None:
        """Write to the lab's journal."""
        self._admission.record(event, exit_code)

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until somebody says in the pod's manifest that it is enough."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._goes_on.wait(), seconds)

    async def report(self) -> None:
        """Write the status to the API server, unless the pod is gone or the node cut off."""
        if not self.partitioned:
            # With the UID in it the patch is refused for a new pod of the same name.
            body = {"metadata": {"uid": self.uid}, "status": self.status.patch()}
            await self._request("PATCH", "/status", body, content_type=STRATEGIC_MERGE)

    async def delete(self, grace_seconds: int | None = None) -> None:
        """
        Delete the pod in the API.

        :param grace_seconds: 0: at once; None: the pod's own grace period
        """
        body: JsonObject = {"preconditions": {"uid": self.uid}}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._request("DELETE", "", body)

    async def run_worker(self) -> None:
        """Start the worker container's command, report it as running, and wait for its end."""
        containers = self._manifest["spec"]["containers"]
        spec = next((item for item in containers if item["name"] == WORKER_CONTAINER), containers[0])
        # Entries with ``valueFrom`` have no meaning on this machine.
        # An API server does not store a value that is empty.
        plain = {
            item["name"]: item.get("value", "") for item in spec.get("env") or [] if "valueFrom" not in item
        }
        self.process = await WorkerProcess.start(
            [*(spec.get("command") or []), *(spec.get("args") or [])],
            env={**self._kubelet.env, **plain, "HOSTNAME": self.name},
            directory=self._directory,
            log=self._directory / f"{spec['name']}.log",
        )
        self.record(JournalEvent.STARTED)
        self.status.run()
        await self.report()
        await self.await_worker()

    async def await_worker(self) -> None:
        """Wait for the end of the worker process and report it."""
        assert self.process is not None
        self.worker_ended(await self.process.wait())
        await self.report()

    async def stop_worker(self) -> None:
        """Ask the worker process to end, and wait until it has or the pod's own grace period is over."""
        assert self.process is not None
        grace: float = self._manifest["spec"].get("terminationGracePeriodSeconds", 0)
        await self.process.stop(grace, hurry=self._gone)

    def worker_ended(self, exit_code: int, reason: str | None = None) -> None:
        """
        Note how the worker process has ended.

        :param reason: of the container; by default that of its exit code
        """
        self.record(JournalEvent.EXITED, exit_code)
        self.status.end_worker(exit_code, reason)

    # -- the end

    async def _play(self, scenario: Scenario) -> None:
        try:
            await scenario(self)
        except (ApiError, aiohttp.ClientError, OSError):
            # The pod is left as it was reported last, until somebody deletes it.
            log.exception("The life of pod %s ended early", self)

    def _look_for_request(self, manifest: JsonObject) -> None:
        is_at_work = self.process is not None and self.status.worker_is_running
        if not is_at_work or self._is_interrupted or self._to_be_deleted.is_set():
            return
        if scenario := self._admission.requested(manifest):
            self._is_interrupted = True
            self._playing = asyncio.create_task(self._play_instead(self._playing, scenario))

    async def _play_instead(self, before: asyncio.Task[None], scenario: Scenario) -> None:
        await _cancel(before)
        await self._play(scenario)

    def _look_for_deadline(self, manifest: JsonObject) -> None:
        if manifest["spec"].get("activeDeadlineSeconds"):
            self._has_deadline.set()

    async def _keep_to_deadline(self) -> None:
        """
        End the pod, and keep it, when it has been active for as long as it may.

        .. seealso:: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#lifecycle
        """
        await self._has_deadline.wait()
        seconds = self._manifest["spec"]["activeDeadlineSeconds"]
        await asyncio.sleep(self._began + seconds - asyncio.get_running_loop().time())
        if self.status.is_terminal:
            return
        await _cancel(self._playing)
        if self.process is not None:
            self.process.kill()
        self.status.exceed_deadline()
        await self.report()

    async def _end(self) -> None:
        if self.process is not None and self.status.worker_is_running:
            # A kubelet grants at least a second.
            grace = max(1.0, self._manifest["metadata"].get("deletionGracePeriodSeconds") or 0)
            self.worker_ended(await self.process.stop(grace, hurry=self._gone))
        elif self.status.worker_is_running:
            # The scenario only said that a process runs.
            self.status.end_worker(EXIT_SIGTERM)
        if self._gone.is_set():
            return
        self.status.end_rest()
        if not self.silent_end:
            await self.report()
        await self.delete(0)
        await self._gone.wait()

    async def _request(
        self, method: str, subresource: str, body: JsonObject, *, content_type: str = "application/json"
    ) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}{subresource}"
        try:
            await self._kubelet.client.request(method, path, body=body, content_type=content_type)
        except ApiError as error:
            # 404, 409, 422: the pod is gone, or another one has its name. The watch tells the rest.
            if error.status not in (404, 409, 422):
                raise
            log.debug("%s %s: %s", method, path, error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    # Not awaited itself: that would take a cancellation of the caller for the one of the task.
    await asyncio.wait({task})
