# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The executor with a window: how much it holds is written to a file every few seconds.

Airflow's own window is SIGUSR2. A scheduler that is sent it again and again may be caught while it holds the
lock of its log file, which the dump then waits for in vain.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from queue import Queue, SimpleQueue
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.executors.creation.template_cache import TemplateCache
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from soak.settings import FOLDER_VARIABLE, holdings_file

INTERVAL = 1.0
"""Seconds between two lines."""

COLLECTION_INTERVAL = 20.0
"""
Seconds between two collections of garbage. Left to itself, Python looks for old cycles of objects when there
are a quarter more objects than last time: for half an hour the memory of an idle scheduler seems to grow.
"""

OURS = ("airflow.providers.cncf.kubernetes_resilience.", "airflow_resilience.", "soak.")
"""The modules of which each object is looked into."""


BOUNDED = (TemplateCache,)
"""Caches, which keep their size when nothing is left to do. Tests of their own hold their limits."""


class MeasuredExecutor(KubernetesExecutor):
    """The executor under test, with nothing changed about what it does."""

    _next_line = _next_collection = 0.0

    def sync(self) -> None:
        """Note what has piled up since the last turn of the scheduler's loop, then do what there is to do."""
        now = time.time()
        if now >= self._next_line:
            self._next_line = now + INTERVAL
            line = json.dumps({"time": now, "holdings": holdings(self)})
            with holdings_file(Path(os.environ[FOLDER_VARIABLE]), os.getpid()).open("a") as file:
                file.write(f"{line}\n")
        if now >= self._next_collection:
            self._next_collection = now + COLLECTION_INTERVAL
            gc.collect()
        super().sync()


def holdings(root: object) -> dict[str, int]:
    """
    Return the size of every collection that an object holds, itself or through other objects of ours.

    Whatever may grow without bound is in one of them; there is no list of them that could lack one. Left out
    are the caches in :data:`BOUNDED`.
    """
    return dict(_walk(root, "", set()))


def _walk(item: Any, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    # An event loop is asyncio's, also where its class is ours: it keeps cancelled timers until they are due.
    if id(item) in seen or isinstance(item, (*BOUNDED, asyncio.AbstractEventLoop)):
        return
    seen.add(id(item))
    if isinstance(item, tuple):
        for part in item:
            yield from _walk(part, path, seen)
    elif (size := _size(item)) is not None:
        yield path, size
    elif type(item).__module__.startswith(OURS):
        for name, value in _attributes(item):
            yield from _walk(value, f"{path}.{name.lstrip('_')}".lstrip("."), seen)


def _attributes(item: object) -> list[tuple[str, Any]]:
    # A copy: another thread may set an attribute at this moment.
    slots = [name for name in getattr(type(item), "__slots__", ()) if hasattr(item, name)]
    return [*getattr(item, "__dict__", {}).items(), *((name, getattr(item, name)) for name in slots)]


def _size(item: object) -> int | None:
    if isinstance(item, (dict, list, set, deque)):
        return len(item)
    return item.qsize() if isinstance(item, (Queue, SimpleQueue)) else None
