# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m cluster_lab OPTIONS``: the cluster lab as a process, until it gets SIGTERM or SIGINT.

The options, in JSON, are those of :class:`.ClusterLab`, the folder of a control plane's programs, and
the file of a plan, which is read again on SIGHUP. :class:`testbed.lab.Lab` starts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster_lab.control_plane import ControlPlane
from cluster_lab.faults.plan import FaultPlan
from cluster_lab.lab import ClusterLab


@contextlib.contextmanager
def _control_plane(binaries: str | None, kubeconfig: Path) -> Iterator[None]:
    if binaries is None:
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="control-plane-", dir=kubeconfig.parent) as home,
        ControlPlane(Path(binaries), Path(home)) as control_plane,
    ):
        control_plane.write_kubeconfig(kubeconfig)
        yield


async def _main(plan: str | None, **options: Any) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ClusterLab(**options) as lab:
        if plan:
            lab.plan = FaultPlan.load(Path(plan))
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _read_plan, lab, Path(plan))
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
    given = json.loads(sys.argv[1])
    given |= {name: Path(given[name]) for name in ("kubeconfig", "journal", "log_dir")}
    with _control_plane(given.pop("control_plane"), given["kubeconfig"]):
        asyncio.run(_main(**given))
