# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Virtual time, and a cluster that does what the test says."""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.client import Listing, WatchEvent
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import error_from_status
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import Timing

from ...support.waiting import WAIT

Json = dict[str, Any]


def manifest(name: str = "worker", uid: str = "uid-1", version: str = "1", **status: Any) -> Json:
    """A pod as the API sends it."""
    return {
        "metadata": {"name": name, "namespace": "airflow", "uid": uid, "resourceVersion": version},
        "status": {"phase": "Pending", **status},
    }


@dataclass
class VirtualTime:
    """A clock that moves only when somebody sleeps; the full delay is always drawn."""

    now: float = 1000.0
    sleeps: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    @property
    def timing(self) -> Timing:
        return Timing(clock=lambda: self.now, sleep=self.sleep, random=lambda: 0.0)


class FakeCluster:
    """
    The pod API of one namespace, as a client of the transport offers it: what informer and launcher stand on.

    Calls fail by operation, before they take effect or after. Watches yield what the test says, and then
    nothing; so do lists, if the test says something about them.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.lists: list[tuple[str, list[Json]] | Exception] | None = None
        """What each of the next lists gives, a version and manifests, and no further one may be asked for;
        None for the pods that there are."""
        self.watches: list[list[tuple[str, Json] | Exception | Callable[[], object]]] = []
        """The events, exceptions and functions to call in between, of each of the next watches."""
        self.quiet = asyncio.Event()
        """Whether all watches were played."""
        self.calls: list[str] = []
        self.fail: dict[str, list[Exception | None]] = defaultdict(list)
        """Per operation, what each of the next calls raises instead of doing anything (None: it works)."""
        self.lose_answer: dict[str, list[Exception]] = defaultdict(list)
        """Per operation, what each of the next calls raises after it has taken effect."""
        self.deletions: list[Json] = []
        self.entered: Callable[[], Any] | None = None
        """Awaited within every call, to hold it."""
        self.before: dict[str, list[Callable[[], object]]] = defaultdict(list)
        """Per operation, what happens just before each of the next calls."""
        self._uids = 0

    async def create_pod(self, namespace: str, body: Json) -> Json:
        return await self._call("create", self._create, body)

    async def get_pod(self, namespace: str, name: str) -> Json:
        return await self._call("get", self._stored, name)

    async def delete_pod(self, namespace: str, name: str, **options: Any) -> Json:
        return await self._call("delete", self._delete, name, options)

    async def patch_pod(self, namespace: str, name: str, body: Json) -> Json:
        return await self._call("patch", self._patch, name, body)

    async def list_pods(self, namespace: str | None, *, read: Any, **_: Any) -> Listing[Any]:
        self.calls.append("list")
        step = ("1", list(self.pods.values())) if self.lists is None else self.lists.pop(0)
        if isinstance(step, Exception):
            raise step
        version, pods = step
        return Listing([item for item in map(read, pods) if item is not None], version)

    async def watch_pods(
        self, namespace: str | None, *, resource_version: str, **_: Any
    ) -> AsyncGenerator[WatchEvent]:
        self.calls.append(f"watch {resource_version}")
        if not self.watches:
            self.quiet.set()
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, tuple):
                yield WatchEvent(*step)
            else:
                step()

    async def played(self, running: Any) -> None:
        """Run an informer until all watches were played."""
        task = asyncio.create_task(running)
        waiting = asyncio.create_task(self.quiet.wait())
        done, _ = await asyncio.wait({task, waiting}, timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert waiting in done, "the script was not played to its end"

    async def close(self) -> None:
        self.calls.append("close")

    async def _call(self, operation: str, function: Callable[..., Json], *args: Any) -> Json:
        self.calls.append(operation)
        if self.entered is not None:
            await self.entered()
        if self.before[operation]:
            self.before[operation].pop(0)()
        if self.fail[operation] and (error := self.fail[operation].pop(0)):
            raise error
        answer = function(*args)
        if self.lose_answer[operation]:
            raise self.lose_answer[operation].pop(0)
        return copy.deepcopy(answer)

    def _create(self, body: Json) -> Json:
        name = body["metadata"]["name"]
        if name in self.pods:
            raise refusal(409, "AlreadyExists")
        self._uids += 1
        pod = copy.deepcopy(body)
        pod["metadata"] |= {"uid": f"uid-{self._uids}", "resourceVersion": "1"}
        pod.setdefault("status", {"phase": "Pending"})
        self.pods[name] = pod
        return pod

    def change(self, name: str, **status: Any) -> None:
        """Give a pod another version, and another status if there is one to give."""
        metadata = self.pods[name]["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        self.pods[name]["status"] = status or self.pods[name]["status"]

    def _stored(self, name: str) -> Json:
        if name not in self.pods:
            raise refusal(404, "NotFound")
        return self.pods[name]

    def _delete(self, name: str, options: Json) -> Json:
        self.deletions.append(options)
        pod = self._stored(name)
        if pod["metadata"]["uid"] != options["uid"]:
            raise refusal(409, "Conflict")
        if options["resource_version"] not in (None, pod["metadata"]["resourceVersion"]):
            raise refusal(409, "Conflict")
        grace = options["options"].get("gracePeriodSeconds", 30)
        pod["metadata"]["deletionGracePeriodSeconds"] = grace
        if grace == 0:
            del self.pods[name]
        return pod

    def _patch(self, name: str, body: Json) -> Json:
        metadata = self._stored(name)["metadata"]
        if body["metadata"]["uid"] != metadata["uid"]:
            raise refusal(422, "Invalid")
        metadata.setdefault("labels", {}).update(body["metadata"]["labels"])
        self.pods[name].setdefault("spec", {}).update(body.get("spec", {}))
        return self.pods[name]


def refusal(status: int, reason: str = "", *, retry_after: int | None = None) -> Exception:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = {"kind": "Status", "reason": reason, "message": f"{reason or status} it said"}
    return error_from_status(status, body, headers=headers)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def pod() -> Callable[..., Json]:
    return manifest


@pytest.fixture
def refused() -> Callable[..., Exception]:
    return refusal
