# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
An event loop beside which the process may be forked, as LocalExecutor and Celery's pool fork the scheduler's.

A forked process has a copy of the memory and all descriptors, but of the threads only the one that forked. A
lock that the loop's thread holds at that moment (of a module that it imports, of OpenSSL in the middle of a
handshake, of a metrics client) is held there for ever, and a connection stays open until that process ends
too: with one that runs tasks for as long as the scheduler lives, a watch that was closed, or whose scheduler
was killed, goes on in the API server.

So the loop stands still while its process forks, in a call that holds nothing, and its descriptors lead
nowhere in the new process.

.. seealso:: https://docs.python.org/3/library/os.html#os.register_at_fork
"""

from __future__ import annotations

import asyncio

# Before our own hooks are registered: its lock is then taken after the loops stand still, not before one of
# them may need it to look up a name.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import selectors
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""A fork waits no longer than that for a loop to stand still. Only code of the deployment, as a client
factory, could keep a loop busy for so long; the fork then happens beside it."""


class ForkSafeLoop(asyncio.SelectorEventLoop):
    """Stands still while its process forks; a forked process has none of its connections."""

    def __init__(self) -> None:
        self._own_selector = selectors.DefaultSelector()
        super().__init__(self._own_selector)
        _loops.add(self)

    def close(self) -> None:
        """Close the loop; forks need not mind it any more."""
        _loops.discard(self)
        super().close()

    def stand_still(self, until: threading.Event) -> threading.Event:
        """
        Have the loop wait, in its thread, for something that happens in another one.

        :return: set once it stands still
        :raises RuntimeError: if it is closed
        """
        standing = threading.Event()

        def stand() -> None:
            standing.set()
            until.wait()

        self.call_soon_threadsafe(stand)
        return standing

    def disconnect(self) -> None:
        """
        In a forked process: have every descriptor of the loop lead nowhere.

        They are replaced and not closed: their numbers stay taken, so that nothing that still has them can
        do harm to what would get them next.
        """
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        registered = [key.fd for key in self._own_selector.get_map().values()]
        for descriptor in (self._own_selector.fileno(), *registered):
            os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)


_loops: set[ForkSafeLoop] = set()


class _Fork(threading.local):
    """The fork that a thread is about to make."""

    is_over = threading.Event()


_fork = _Fork()


def _before() -> None:
    _fork.is_over = threading.Event()
    deadline = time.monotonic() + PAUSE_SECONDS
    for standing in [*_standing_still(_fork.is_over)]:
        if not standing.wait(max(0.0, deadline - time.monotonic())):
            logger.warning("A process is forked while the Kubernetes thread is busy")


def _standing_still(until: threading.Event) -> Iterator[threading.Event]:
    for loop in tuple(_loops):
        with suppress(RuntimeError):  # it has been closed meanwhile
            if not _is_running_here(loop):
                yield loop.stand_still(until)


def _after_in_parent() -> None:
    _fork.is_over.set()


def _after_in_child() -> None:
    loops = tuple(_loops)
    _loops.clear()
    for loop in loops:
        loop.disconnect()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
