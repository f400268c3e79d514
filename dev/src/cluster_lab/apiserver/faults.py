# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Faults of the embedded server on demand, for tests: those of requests, cut and silent watches, compaction.

The methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster_lab.apiserver.request_faults import Predicate, RequestFaults, any_request
from cluster_lab.apiserver.store import Store
from cluster_lab.apiserver.watch import WatchStream
from cluster_lab.loop_thread import run_on


class Faults(RequestFaults):
    """Fault injection into one embedded server."""

    def __init__(self, store: Store, streams: set[WatchStream]) -> None:
        super().__init__()
        self._store = store
        self._streams = streams
        self._loop: asyncio.AbstractEventLoop | None = None

    def cut_watches(self, when: Predicate = any_request) -> None:
        """Break the connections of the watches that are open."""
        self._each_stream(WatchStream.cut, when)

    def freeze_watches(self, when: Predicate = any_request) -> None:
        """Make the open watches silent, without closing them. Watches opened later are not affected."""
        self._each_stream(WatchStream.freeze, when)

    def thaw_watches(self, when: Predicate = any_request) -> None:
        """Let frozen watches go on."""
        self._each_stream(WatchStream.thaw, when)

    def compact(self) -> None:
        """Expire every older resource version and continue token."""
        self._on_loop(self._store.compact)

    def open_watches(self, when: Predicate = any_request) -> int:
        """:returns: how many watches are open."""
        return len([stream for stream in tuple(self._streams) if when(stream.info)])

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell on which loop the server runs."""
        self._loop = loop

    def _each_stream(self, act: Callable[[WatchStream], None], when: Predicate) -> None:
        def run() -> None:
            for stream in tuple(self._streams):
                if when(stream.info):
                    act(stream)

        self._on_loop(run)

    def _on_loop(self, act: Callable[[], None]) -> None:
        if self._loop is None:
            raise RuntimeError("the server is not running")
        run_on(self._loop, act)
