# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Counting launches: the first pod of a task instance's try is 1, its replacement 2, and so on.

The lab counts the pods that it sees itself, because the official executor writes no launch number on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class LaunchPhase(StrEnum):
    """Which part of a task try a pod runs."""

    INITIAL = "initial"
    RESUME = "resume"
    """
    Any pod after one of the same try that ended well: such a try goes on only because its task was deferred
    or rescheduled. The count of launches begins at 1 again after each such pod.
    """


class TaskTry(NamedTuple):
    """
    One try of one task instance, read from the annotations that the executor puts on its pods.

    A pod that is not a worker of Airflow has empty texts and try number 0.
    """

    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    """-1 for a task that is not mapped."""
    try_number: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One pod, as the n-th attempt to run (a phase of) a task try."""

    task_try: TaskTry
    phase: LaunchPhase
    number: int
    """Counts from 1 in each phase."""
    node: str = ""


class LaunchCounter:
    """Numbers pods in the order in which the lab's nodes see them."""

    def __init__(self) -> None:
        self._counts: Counter[TaskTry] = Counter()
        self._ended_well: set[TaskTry] = set()

    def register(self, pod: Mapping[str, Any]) -> Launch:
        """
        Count a pod; to be called once for each UID.

        :param pod: a pod manifest
        """
        task_try = _read_task_try(pod["metadata"].get("annotations") or {})
        self._counts[task_try] += 1
        phase = LaunchPhase.RESUME if task_try in self._ended_well else LaunchPhase.INITIAL
        return Launch(task_try, phase, self._counts[task_try], pod["spec"].get("nodeName", ""))

    def ended_well(self, launch: Launch) -> None:
        """Note that the worker of this launch exited with code 0: whatever follows resumes the task."""
        self._ended_well.add(launch.task_try)
        del self._counts[launch.task_try]


def _read_task_try(annotations: Mapping[str, str]) -> TaskTry:
    return TaskTry(
        dag_id=annotations.get("dag_id", ""),
        task_id=annotations.get("task_id", ""),
        run_id=annotations.get("run_id", ""),
        map_index=int(annotations.get("map_index", -1)),
        try_number=int(annotations.get("try_number", 0)),
    )
