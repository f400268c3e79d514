# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What becomes of each method of the official executor: replaced, kept, or never called here.

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
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import EXECUTOR_MODULE

OfficialExecutor = import_module(EXECUTOR_MODULE).KubernetesExecutor

UNUSED = {
    "_adopt_completed_pods",
    "_alive_other_scheduler_job_ids",
    "_change_state",
    "_create_pods_concurrently",
    "_create_pods_sequentially",
    "_discard_stale_pod_creation_task",
    "_flush_result_queue",
    "_flush_task_queue",
    "_get_task_instance_state",
    "_handle_pod_publish_error",
    "_is_pre_execution_failure",
    "_list_pods",
    "_record_pod_creation_batch",
    "_should_create_pod_for_execute_task",
    "_should_create_pod_for_job",
    "_task_instance_id_from_pod",
    "adopt_launched_task",
    "cleanup_stuck_queued_tasks",
    "get_pod_combined_search_str_to_pod_map",
}
"""Its way to watch, create, assess and adopt pods. Not every version has each."""

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


KEPT_CAPABILITIES = {"supports_ad_hoc_ti_run", "supports_multi_team"}


def capabilities_of(class_: type) -> set[str]:
    named = {name for base in class_.__mro__ for name in vars(base) if name.startswith("support")}
    return {name for name in named if getattr(class_, name)}


def test_what_a_later_official_executor_can_do_besides_is_not_inherited() -> None:
    assert capabilities_of(KubernetesExecutor) - vars(KubernetesExecutor).keys() <= KEPT_CAPABILITIES


def methods_of(class_: type) -> dict[str, Callable[..., Any]]:
    """Return the functions that a class itself defines."""
    found = {name: getattr(class_, name) for name in vars(class_)}
    return {name: value for name, value in found.items() if inspect.isroutine(value)}


def test_every_method_of_the_official_executor_is_replaced_kept_or_never_called() -> None:
    replaced = methods_of(KubernetesExecutor).keys()
    assert methods_of(OfficialExecutor).keys() - replaced - KEPT - UNUSED == set()


@pytest.mark.parametrize("name", sorted(UNUSED))
def test_nothing_of_airflow_or_of_what_is_kept_calls_what_is_not_replaced(name: str) -> None:
    assert not hasattr(BaseExecutor, name)
    callers = [SchedulerJobRunner, BaseExecutor, KubernetesExecutor]
    callers += [method for kept, method in methods_of(OfficialExecutor).items() if kept in KEPT]
    callers += [OfficialExecutor.__init__, OfficialExecutor.execute_async]
    for caller in callers:
        assert f".{name}(" not in inspect.getsource(caller)
