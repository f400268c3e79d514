# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m cluster_lab OPTIONS``: the cluster lab as a process, until it gets SIGTERM or SIGINT.

The options, in JSON, are those of :class:`.ClusterLab`, and the file of a plan, which is read again on
SIGHUP. :class:`testbed.lab.Lab` starts it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from cluster_lab.faults.plan import FaultPlan
from cluster_lab.lab import ClusterLab

_FILES = ("kubeconfig", "journal", "log_dir", "plan")


async def _main(plan: Path, **options: Any) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ClusterLab(plan=FaultPlan.load(plan), **options) as lab:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _read_plan, lab, plan)
        print(f"cluster lab ready: {lab.url}", flush=True)
        await stop.wait()


def _read_plan(lab: ClusterLab, file: Path) -> None:
    lab.plan = FaultPlan.load(file)
    print("fault plan was read again", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    given = json.loads(sys.argv[1])
    asyncio.run(_main(**given | {name: Path(given[name]) for name in _FILES}))
