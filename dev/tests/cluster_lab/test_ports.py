# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A port that a program is told of before it listens there is given to nobody else meanwhile."""

from __future__ import annotations

import subprocess
import sys

from cluster_lab.ports import BLOCK_SIZE, BLOCKS, free_port

ANOTHER_PROCESS = """
from cluster_lab.ports import free_port
print(free_port(), flush=True)
input()
"""


def block_of(port: int) -> int:
    return port - port % BLOCK_SIZE


def test_two_processes_have_different_blocks() -> None:
    ours = block_of(free_port())
    command = [sys.executable, "-c", ANOTHER_PROCESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = block_of(int(other.stdout.readline()))
        other.communicate("\n")
    assert ours != theirs
    assert {ours, theirs} <= set(BLOCKS)
