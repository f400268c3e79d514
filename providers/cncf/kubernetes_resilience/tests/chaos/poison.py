# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An exception that nobody has expected, in one step of what the executor does, about one task instance."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.pods.facts import TASK_INSTANCE_ID_ANNOTATION

PACKAGE = "airflow.providers.cncf.kubernetes_resilience.executors"

STEPS = {
    "failures.judge:assess": "killed",
    "failures.record:classify": "killed",
    "failures.policies:make_evidence": "killed",
    "failures.record:ledger.record": "killed",
    "deletion.pod_deletion:PodDeletion.supersede": "killed",
    "launches.workload:StoredWorkload.job": "killed",
    "failures.judge:_judge_due": "killed",
    "creation.pod_builder:PodBuilder.build": "killed",
    "creation.create_retries:CreateRetries.ask": "killed",
    "creation.create_retries:CreateRetries._wait": "not created",
    "failures.judge:_judge_creation": "not created",
    "failures.situation:find_failure": "orphaned",
    "failures.judge:_judge_unstarted": "pending",
    "deletion.garbage_collection:try_of": "left behind",
    "adoption.adopter:launch_of": "orphaned",
    "adoption.plan:task_key": "orphaned",
}
"""Functions that are called about one task instance each, by module and name in :data:`PACKAGE`, and what has
to befall a pod for that."""


class Poison(Exception):  # noqa: N818 - it stands for an error of any kind
    """What is raised."""


def poison(patch: pytest.MonkeyPatch, step: str, concerns: Callable[[Any], bool], taken: list[str]) -> None:
    """
    Have a step raise :class:`Poison` for some task instances.

    :param concerns: tells by a task instance's UUID, or by its key, whether it is one of them
    :param taken: the step is appended to it each time
    """
    module, _, name = step.partition(":")
    path, _, attribute = f"{PACKAGE}.{module}:{name}".rpartition("." if "." in name else ":")
    owner = pkgutil.resolve_name(path)
    function = getattr(owner, attribute)

    @functools.wraps(function)
    def poisoned(*args: Any, **kwargs: Any) -> Any:
        if any(concerns(name) for value in (*args, *kwargs.values()) for name in _names(value)):
            taken.append(step)
            raise Poison(step)
        return function(*args, **kwargs)

    patch.setattr(owner, attribute, poisoned)


def _names(value: Any) -> Iterator[Any]:
    """Find the UUIDs and keys of the task instances that an argument is about."""
    if isinstance(value, TaskInstanceKey):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)
    annotations = value if isinstance(value, Mapping) else getattr(value, "annotations", None)
    if isinstance(annotations, Mapping) and (ti_id := annotations.get(TASK_INSTANCE_ID_ANNOTATION)):
        yield str(ti_id)
    if ti_id := getattr(value, "ti_id", None):
        yield str(ti_id)
    for part in ("facts", "launch"):
        if (inner := getattr(value, part, None)) is not None:
            yield from _names(inner)
