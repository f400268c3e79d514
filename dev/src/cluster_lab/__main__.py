# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m cluster_lab``: the cluster lab as a process, until it gets SIGTERM or SIGINT.

It reads its fault plan again when it gets SIGHUP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cluster_lab.control_plane import ControlPlane
from cluster_lab.faults.plan import FaultPlan
from cluster_lab.lab import ClusterLab


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cluster_lab", description="Simulated Kubernetes nodes")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="read; written if a server is started")
    parser.add_argument("--nodes", type=int, default=3, help="how many nodes (default: 3)")
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--embedded", action="store_true", help="start an API server as well")
    server.add_argument("--control-plane", type=Path, metavar="BINARIES", help="start a real control plane")
    parser.add_argument("--plan", type=Path, help="fault plan (YAML)")
    parser.add_argument("--journal", type=Path, required=True, help="file for the journal (JSON lines)")
    parser.add_argument("--log-dir", type=Path, required=True, help="directory for the containers' logs")
    of_workers = "environment of every worker process"
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE", help=of_workers)
    return parser.parse_args()


@contextlib.contextmanager
def _control_plane(options: argparse.Namespace) -> Iterator[None]:
    if options.control_plane is None:
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="control-plane-", dir=options.kubeconfig.parent) as home,
        ControlPlane(options.control_plane, Path(home)) as control_plane,
    ):
        control_plane.write_kubeconfig(options.kubeconfig)
        yield


async def _main(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ClusterLab(
        kubeconfig=options.kubeconfig,
        nodes=options.nodes,
        embedded=options.embedded,
        plan=FaultPlan.load(options.plan) if options.plan else FaultPlan(),
        journal=options.journal,
        log_dir=options.log_dir,
        env=dict(item.split("=", 1) for item in options.env),
    ) as lab:
        if options.plan:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _read_plan, lab, options.plan)
        print(f"cluster lab ready: {lab.url}", flush=True)
        await stop.wait()


def _read_plan(lab: ClusterLab, file: Path) -> None:
    lab.plan = FaultPlan.load(file)
    print("fault plan was read again", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Until the event loop has its own handlers: what has been started by then has to be stopped.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    options = _parse()
    with _control_plane(options):
        asyncio.run(_main(options))
