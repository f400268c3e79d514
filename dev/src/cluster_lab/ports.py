# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Free ports on loopback for the servers that the lab, the demo and the tests start."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"

BLOCK_SIZE = 100

BLOCKS = range(20_000, 30_000, BLOCK_SIZE)
"""
The first port of each block.

The kernel gives outgoing connections and servers that ask for any port those from 32768 on, unless a machine
is configured otherwise, and a cluster gives its node ports those from 30000 on.
"""


def free_port() -> int:
    """
    Return a port on which nobody listens, and which no other call returns, in any process.

    A server is told of its port up to a minute before it listens there.

    :raises RuntimeError: if other processes own all ports
    """
    with _taking_turns:
        return next(_ports)


def _ports_of_this_process() -> Iterator[int]:
    for first in BLOCKS:
        if owner := _bind(first):
            # The descriptor stays open until this process ends, and with it the block belongs to the process.
            owner.detach()
            for port in range(first + 1, first + BLOCK_SIZE):
                if server := _bind(port):
                    server.close()
                    yield port
    raise RuntimeError(f"every block of ports from {BLOCKS.start} to {BLOCKS.stop} has an owner")


def _bind(port: int) -> socket.socket | None:
    bound = socket.socket()
    try:
        bound.bind((LOOPBACK, port))
    except OSError:
        bound.close()
        return None
    return bound


_taking_turns = threading.Lock()
_ports = _ports_of_this_process()
