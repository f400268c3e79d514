# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Free ports on loopback for the servers that the lab, the demo and the tests start."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """
    Ask the kernel for a port on which nobody listens.

    The port is free when this returns, not reserved: bind it soon. The kernel hands out ephemeral ports in
    such an order that two callers at the same time practically never get the same one.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
