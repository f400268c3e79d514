# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from cluster_lab.managed_process import ManagedProcess
from testbed.waiting import LONGEST_WAIT, wait_for

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""


def test_stop_ends_the_children_too(tmp_path: Path) -> None:
    process = ManagedProcess("p", [sys.executable, "-c", PARENT], os.environ, tmp_path / "p.log")
    process.start()
    try:
        child = psutil.Process(int(wait_for("it has written a line", process.tail).split()[1]))
    finally:
        process.stop()
    assert not process.running
    psutil.wait_procs([child], timeout=LONGEST_WAIT)
    assert not child.is_running()
