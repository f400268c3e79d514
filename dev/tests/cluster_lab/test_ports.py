# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A port that a program is told of before it listens there is given to nobody else meanwhile."""

from __future__ import annotations

import errno
import socket

import pytest

from cluster_lab.ports import LOOPBACK, free_port


def test_nobody_else_can_have_the_port() -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use") as refused:
        other.bind((LOOPBACK, free_port()))
    assert refused.value.errno == errno.EADDRINUSE


def test_a_server_can_listen_there_again_and_again_and_nobody_answers_in_between() -> None:
    port = free_port()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port))
        with (
            socket.create_server((LOOPBACK, port)) as server,
            socket.create_connection((LOOPBACK, port)) as client,
        ):
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(b"here")
                assert client.recv(4) == b"here"
