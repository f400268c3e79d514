# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a process with all its children needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

_KILOBYTE = 1024


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """Return the processor time, in user and system mode, of a process and all its children so far."""
    total = 0.0
    for process in family(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def proportional_set_size(pid: int) -> int:
    """
    Return the memory of a process and all its children, in bytes.

    A page that several of them share counts once, which neither RSS (too often) nor USS (never) does.

    .. seealso:: https://docs.kernel.org/filesystems/proc.html
    """
    total = 0
    for process in family(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            total += _pss(Path(f"/proc/{process.pid}/smaps_rollup").read_text())
    return total


def _pss(rollup: str) -> int:
    (line,) = (line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * _KILOBYTE
