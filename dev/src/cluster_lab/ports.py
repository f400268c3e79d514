# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Free ports on loopback for the servers that the lab, the demo and the tests start."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """
    Reserve a port on which nobody listens, until this process ends.

    The kernel chooses among all free ports at random, and would give one that is only known to be free to
    somebody else before it is used: once in some thousand control planes, to another program of the same one.
    It gives nobody a port that is bound. A server can listen there all the same, if it sets ``SO_REUSEADDR``:
    that is allowed for as long as no other one listens.
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((LOOPBACK, 0))
    port: int = reservation.getsockname()[1]
    # The descriptor stays open. Nobody has to keep the socket.
    reservation.detach()
    return port
