# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from queue import Queue, SimpleQueue
from typing import Any

from soak.measured import holdings


class Part:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


Part.__module__ = "airflow_resilience.part"


class Foreign(Part):
    pass


def test_every_collection_is_found() -> None:
    inbox: SimpleQueue[int] = SimpleQueue()
    inbox.put(1)
    root = Part(
        running={1, 2},
        _registry=Part(_current={"a": 1}, _list=[1, 2, 3]),
        _informers=(Part(_view=Part(_pods={1: 1, 2: 2})),),
        _inbox=inbox,
        queue=Queue(),
        history=deque([1]),
        counter=Counter("abc"),
        name="not a collection",
    )
    assert holdings(root) == {
        "running": 2,
        "registry.current": 1,
        "registry.list": 3,
        "informers.view.pods": 2,
        "inbox": 1,
        "queue": 0,
        "history": 1,
        "counter": 3,
    }


@dataclass(frozen=True, slots=True)
class Slotted:
    items: list[int]


def test_slots_are_looked_into() -> None:
    Slotted.__module__ = Part.__module__
    assert holdings(Part(parts=Slotted([1, 2]))) == {"parts.items": 2}


def test_circles_and_foreign_objects_are_left_alone() -> None:
    Foreign.__module__ = "airflow.jobs.scheduler_job_runner"
    root = Part(items=[1], foreign=Foreign(items=[1, 2]))
    vars(root)["itself"] = Part(root=root)
    assert holdings(root) == {"items": 1}
