# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The cluster lab: simulated nodes on an API server of its own or on a given one, with faults from a plan.

.. code-block:: python

    async with ClusterLab(kubeconfig=kubeconfig, log_dir=folder, embedded=True).running():
        ...  # Airflow uses the kubeconfig
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from cluster_lab.apiserver import ApiServer
from cluster_lab.apiserver.server import in_background
from cluster_lab.client import JsonObject, KubeClient
from cluster_lab.faults.plan import FAULT_ANNOTATION, Fault, FaultRule, LaunchCounter, load_plan
from cluster_lab.faults.scenarios import AT_WORK, run_normally, scenario_for
from cluster_lab.journal import JournalEntry, JournalEvent
from cluster_lab.kubelet.kubelet import Kubelet
from cluster_lab.kubelet.logs import LogDirectory
from cluster_lab.kubelet.node import Node
from cluster_lab.kubelet.pod import Admission, Scenario
from cluster_lab.ports import LOOPBACK

log = logging.getLogger(__name__)

PATIENCE = 900.0
"""Seconds for which a request is repeated: longer than any outage that is tried. A node that gave up would
never be ready again, and its pods would never say how they ended."""
_FAREWELL_SECONDS = 5
_INHERITED = ("LANG", "LC_ALL", "TMPDIR")
_HOME = "/"
"""
The home of a user without an entry in ``/etc/passwd``, which is what pods run as in many clusters. Not that
of whoever runs the lab: bash reads ``~/.bashrc`` if its input is a socket, as a worker's is, and what is in
there may take a minute.
"""


@dataclass(kw_only=True)
class ClusterLab:
    """A cluster of simulated nodes."""

    kubeconfig: Path
    """How to reach the API server; written, not read, with ``embedded``."""
    log_dir: Path
    """Where the logs of the containers go."""
    nodes: int = 3
    """How many; they are named ``lab-node-1`` and so on."""
    embedded: bool = False
    """Start an API server in this process."""
    plan: tuple[FaultRule, ...] = field(init=False, default=())
    """What happens to which pod, by the first rule that fits; at first nothing."""
    env: Mapping[str, str] = field(default_factory=dict)
    """
    Environment of every worker process, on top of ``PATH`` (the programs of the running Python come first),
    ``HOME`` and the locale of this process.
    """
    journal: list[JournalEntry] = field(init=False, default_factory=list)
    """What it has done to pods so far, oldest first; to be read from any thread."""
    _launches: LaunchCounter = field(init=False, default_factory=LaunchCounter)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run for as long as the block lasts."""
        async with contextlib.AsyncExitStack() as stack:
            if self.embedded:
                embedded = ApiServer(secrets.token_urlsafe(16))
                server = await stack.enter_async_context(embedded.running())
                server.write_kubeconfig(self.kubeconfig)
            client = await stack.enter_async_context(KubeClient(self.kubeconfig, PATIENCE))
            await self._start_nodes(stack, client)
            yield

    async def _start_nodes(self, stack: contextlib.AsyncExitStack, client: KubeClient) -> None:
        logs = LogDirectory(self.log_dir)
        port = await stack.enter_async_context(logs.serving(LOOPBACK))
        env = {**_base_environment(), **self.env}
        for number in range(1, self.nodes + 1):
            node = Node(client, f"lab-node-{number}", address=LOOPBACK, kubelet_port=port)
            await node.register()
            stack.push_async_callback(_remove, node)
            kubelet = Kubelet(node=node, client=client, admit=self._admit, env=env, logs=logs)
            await stack.enter_async_context(in_background(kubelet.run()))

    def use(self, faults: Path) -> None:
        """
        Let other faults happen from now on; from any thread.

        :param faults: the file of a plan
        """
        self.plan = load_plan(faults)

    def _admit(self, manifest: JsonObject) -> Admission:
        launch = self._launches.register(manifest)
        rule = next((rule for rule in self.plan if rule.matches(launch)), None)

        def record(event: JournalEvent, exit_code: int | None) -> None:
            if event is JournalEvent.EXITED and exit_code == 0:
                self._launches.ended_well(launch)
            entry = JournalEntry(
                time=datetime.now(UTC),
                event=event,
                pod=manifest["metadata"]["name"],
                uid=manifest["metadata"]["uid"],
                node=launch.node,
                **launch.task_try._asdict(),
                launch=launch.number,
                exit_code=exit_code,
            )
            self.journal.append(entry)
            log.info("%s", entry)

        return Admission(scenario_for(rule) if rule else run_normally, record, _requested)


def _requested(manifest: JsonObject) -> Scenario | None:
    fault = (manifest["metadata"].get("annotations") or {}).get(FAULT_ANNOTATION)
    return AT_WORK[Fault(fault)] if fault else None


async def _remove(node: Node) -> None:
    # A given API server may have been stopped first.
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await node.remove()


def _base_environment() -> dict[str, str]:
    # ``python`` in a pod's command has to be the one that has Airflow, as it is in Airflow's image.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    inherited = {key: value for key, value in os.environ.items() if key in _INHERITED}
    return inherited | {"HOME": _HOME, "PATH": path}
