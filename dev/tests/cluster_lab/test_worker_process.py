# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A simulated container leaves no process behind, whatever its processes do to themselves."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from cluster_lab.kubelet.process import WorkerProcess
from testbed.waiting import LONGEST_WAIT, wait_for

# Like Airflow's task process: in a group of its own, and without an environment that can be read.
OWN_GROUP = "env={}, process_group=0"
OWN_SESSION = "start_new_session=True"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], {escape})
print("child", child.pid, flush=True)
time.sleep(600)
"""


def _child_named_in(log: Path) -> psutil.Process:
    words = wait_for("the worker names its child", lambda: log.exists() and log.read_text().splitlines())
    assert words
    return psutil.Process(int(words[0].split()[-1]))


@pytest.mark.parametrize("escape", [OWN_GROUP, OWN_SESSION])
async def test_killing_the_worker_ends_what_has_left_its_group(tmp_path: Path, escape: str) -> None:
    argv = [sys.executable, "-c", PARENT.format(escape=escape)]
    log = tmp_path / "base.log"
    worker = await WorkerProcess.start(argv, env=os.environ, directory=tmp_path, log=log)
    child = await asyncio.to_thread(_child_named_in, log)
    worker.kill()
    assert await worker.wait() == 137
    psutil.wait_procs([child], timeout=LONGEST_WAIT)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
