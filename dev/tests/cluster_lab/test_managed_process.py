# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Processes that are started, signalled, and gone with their children when they are stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cluster_lab.managed_process import ManagedProcess
from testbed.waiting import LONGEST_WAIT, wait_for

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], ManagedProcess]]:
    started: list[ManagedProcess] = []

    def start(program: str) -> ManagedProcess:
        process = ManagedProcess("p", [sys.executable, "-c", program], os.environ, tmp_path / "p.log")
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop(timeout=0)


def output_of(process: ManagedProcess) -> str:
    return wait_for("the process has written a line", process.tail)


def test_stop_ends_the_children_too(start: Callable[[str], ManagedProcess]) -> None:
    process = start(PARENT)
    child = psutil.Process(int(output_of(process).split()[1]))
    process.stop()
    assert not process.running
    psutil.wait_procs([child], timeout=LONGEST_WAIT)
    assert not child.is_running()


def test_a_line_that_is_written_again_and_again_is_shown_once(start: Callable[[str], ManagedProcess]) -> None:
    process = start("for n in range(9): print(f'2026-11-27T00:00:0{n}Z looks', 'at', sep='\\n')")
    process.wait(LONGEST_WAIT)
    assert process.tail(3) == "at\n2026-11-27T00:00:08Z looks\nat"
    assert process.tail().splitlines() == ["at"] * 8 + ["2026-11-27T00:00:08Z looks", "at"]
