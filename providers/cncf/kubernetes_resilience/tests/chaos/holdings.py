# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What an executor holds: whatever may grow without bound is in one of its collections."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from queue import Queue, SimpleQueue
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.executors.creation.template_cache import TemplateCache

OURS = ("airflow.providers.cncf.kubernetes_resilience.", "airflow_resilience.")
"""The modules of which each object is looked into."""

BOUNDED = (TemplateCache,)
"""Caches, which keep their size when nothing is left to do. Tests of their own hold their limits."""

BOUNDED_NAME = "isolation.said"
"""Has an item for each step and type of exception."""


def holdings(root: object) -> dict[str, int]:
    """Return the size of every collection that an object holds, itself or through other objects of ours."""
    return dict(_walk(root, "", set()))


def _walk(item: Any, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    if id(item) in seen or isinstance(item, BOUNDED):
        return
    seen.add(id(item))
    if isinstance(item, tuple):
        for part in item:
            yield from _walk(part, path, seen)
    elif (size := _size(item)) is not None:
        if not path.endswith(BOUNDED_NAME):
            yield path, size
    elif type(item).__module__.startswith(OURS):
        slots = [name for name in getattr(type(item), "__slots__", ()) if hasattr(item, name)]
        attributes = [*getattr(item, "__dict__", ()), *slots]
        for name, value in ((name, getattr(item, name)) for name in attributes):
            yield from _walk(value, f"{path}.{name.lstrip('_')}".lstrip("."), seen)


def _size(item: object) -> int | None:
    if isinstance(item, (dict, list, set, deque)):
        return len(item)
    return item.qsize() if isinstance(item, (Queue, SimpleQueue)) else None
