# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What becomes of each method of the official executor: replaced, kept, or of no use here.

A version that brings another one fails with its name, so that somebody looks at it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from airflow.executors.base_executor import BaseExecutor
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.unused_upstream import Unused, UnusedUpstream
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import EXECUTOR_MODULE

OfficialExecutor = import_module(EXECUTOR_MODULE).KubernetesExecutor

UNUSED = [name for name, value in vars(UnusedUpstream).items() if isinstance(value, Unused)]

KEPT = {
    "_coordinator_extra",
    "_coordinator_kube_image",
    "_coordinator_pod_template_file",
    "_create_log_stream",
    "_get_pod_namespace",
    "_make_safe_label_value",
    "_process_workloads",
    "get_task_log",
    "queue_workload",
    "terminate",
}
"""In use, or right by itself. Not every version has each."""


def methods_of(class_: type) -> dict[str, Callable[..., Any]]:
    """Return the functions that a class itself defines."""
    found = {name: getattr(class_, name) for name in vars(class_)}
    return {name: value for name, value in found.items() if inspect.isroutine(value)}


def test_every_method_of_the_official_executor_is_replaced_kept_or_of_no_use() -> None:
    replaced = methods_of(KubernetesExecutor).keys()
    assert methods_of(OfficialExecutor).keys() - replaced - KEPT - set(UNUSED) == set()


@pytest.mark.parametrize("name", UNUSED)
def test_method_of_no_use_says_what_takes_its_place(name: str) -> None:
    for owner in (KubernetesExecutor, KubernetesExecutor()):
        with pytest.raises(NotImplementedError, match=rf"^{name} of the official .+: \w+"):
            getattr(owner, name)("anything", session=None)


@pytest.mark.parametrize("name", UNUSED)
def test_nothing_of_airflow_or_of_what_is_kept_calls_a_method_of_no_use(name: str) -> None:
    assert not hasattr(BaseExecutor, name)
    callers = [SchedulerJobRunner, BaseExecutor, KubernetesExecutor]
    callers += [method for kept, method in methods_of(OfficialExecutor).items() if kept in KEPT]
    callers += [OfficialExecutor.__init__, OfficialExecutor.execute_async]
    for caller in callers:
        assert f".{name}(" not in inspect.getsource(caller)
