# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A port that a program is told of before it listens there is given to nobody else meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cluster_lab import ports
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


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks of two ports to give away, in place of those of this process."""
    given = [free_port()]
    while len(given) < 6:
        port = free_port()
        # A port between two of them may be somebody else's.
        given = [*given, port] if port == given[-1] + 1 else [port]
    monkeypatch.setattr(ports, "BLOCK_SIZE", 2)
    monkeypatch.setattr(ports, "BLOCKS", range(given[0], given[-1], 2))
    monkeypatch.setattr(ports, "_ports", ports._ports_of_this_process())
    return given


def test_another_block_follows_when_all_ports_of_one_are_given(small_blocks: list[int]) -> None:
    assert [free_port() for _ in range(3)] == small_blocks[1::2]
    with pytest.raises(RuntimeError, match="has an owner"):
        free_port()
