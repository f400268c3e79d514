# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the process of a scheduler needs, and what its executor holds, measured every few seconds."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil

from soak.growth import Allowance, Sample
from soak.settings import holdings_file

MEMORY = "memory (MB)"
THREADS = "threads"
SOCKETS = "open sockets"
FILES = "open files"
PROCESSES = "processes"

ALLOWANCES = {
    # Python does not give all memory back that it has used at its busiest.
    MEMORY: Allowance(plus=10, percent=10),
    # The event loop looks names up in threads that it keeps.
    THREADS: Allowance(plus=2),
    # Connections to Kubernetes (32 for changes, some for lists and the watch) and to the database (15) are
    # made when many are needed at once, and kept for some time. One that is left behind by each pod, or by
    # each watch, is soon beyond what the pools may hold.
    SOCKETS: Allowance(plus=5, pooled=55),
    FILES: Allowance(plus=5, pooled=60),
    PROCESSES: Allowance(plus=0),
}


def measure(pid: int) -> Sample:
    """
    Measure a process with its children.

    :raises psutil.NoSuchProcess: if it has ended
    """
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    memory = sum(process.memory_full_info().uss for process in family)
    return Sample(
        time.time(),
        {
            MEMORY: memory / 2**20,
            THREADS: sum(process.num_threads() for process in family),
            SOCKETS: sum(len(process.net_connections("all")) for process in family),
            FILES: sum(process.num_fds() for process in family),
            PROCESSES: len(family),
        },
    )


def read_holdings(folder: Path, pid: int) -> list[Sample]:
    """Return what the executor of a scheduler has written about itself so far."""
    complete, _, _ = holdings_file(folder, pid).read_text().rpartition("\n")
    lines = [json.loads(line) for line in complete.splitlines()]
    return [Sample(line["time"], line["holdings"]) for line in lines]


def allowances_of(samples: list[Sample]) -> dict[str, Allowance]:
    """Return an allowance for each collection whose size has ever changed, under its name."""
    idle = samples[0].values
    names = {name for sample in samples for name, size in sample.values.items() if size != idle.get(name, 0)}
    # How many tasks there are at one time is a matter of chance, within limits. What is kept of each task
    # that there ever was is beyond them soon, and is not gone in the end.
    return {name: Allowance(plus=20, percent=100) for name in sorted(names)}
