# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Differences between the supported versions of Airflow and of the official provider.

A contract test has the list of all that is not public and that this executor stands on. A release that moves
one of these fails with its name, and not with a lost task.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import jwt
from airflow.configuration import conf
from airflow.executors.workloads import ExecuteTask
from airflow.providers.cncf.kubernetes import kube_client
from airflow.version import version as airflow_version
from opentelemetry import trace
from opentelemetry.trace import Tracer

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.tokens import JWTGenerator
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.sdk import DAG
    from airflow.serialization.definitions.dag import SerializedDAG
    from kubernetes.client import CoreV1Api

_AIRFLOW_VERSION = tuple(map(int, airflow_version.split(".")[:2]))
_PROVIDER = "airflow.providers.cncf.kubernetes"

OFFICIAL_EXECUTOR_MODULE = f"{_PROVIDER}.executors.kubernetes_executor"
MOVED_EXECUTOR_MODULE = f"{_PROVIDER}.executors.official_kubernetes_executor"
"""Where the official module is in a wheel of the provider that :mod:`..cli.in_place_wheel` has made."""

EXECUTOR_MODULE = MOVED_EXECUTOR_MODULE if find_spec(MOVED_EXECUTOR_MODULE) else OFFICIAL_EXECUTOR_MODULE
"""The module that has the official executor. In such a wheel, the other name leads back here."""

_SERIALIZATION = "airflow.serialization.serialized_objects"


TASKS_ALONE: frozenset[Any] = (
    frozenset({import_module("airflow.executors.workloads").WorkloadType.EXECUTE_TASK})
    if _AIRFLOW_VERSION >= (3, 4)
    else frozenset()
)
"""The kinds of workloads that this executor runs; empty where an executor has a flag for each kind."""


def make_token(ti_id: str, generator: JWTGenerator) -> str:
    """Make the token with which a worker starts a task instance, valid from now on."""
    if hasattr(ExecuteTask, "generate_token"):
        return ExecuteTask.generate_token(ti_id, generator)
    # Airflow 3.1 does this in ExecuteTask.make(); its tokens have no scope and the generator's validity.
    return generator.generate({"sub": ti_id})


def read_validity(token: str) -> float:
    """
    Return for how long a token is valid from when it was made, in seconds.

    Airflow 3.1 takes that from ``[execution_api] jwt_expiration_time``, and later versions from ``[scheduler]
    task_queued_timeout``.
    """
    claims = jwt.decode(token, options={"verify_signature": False})
    return float(claims["exp"] - claims["iat"])


def find_tracer(name: str) -> Tracer | None:
    """Return what makes spans; None if the deployment has no traces."""
    if _AIRFLOW_VERSION >= (3, 2):
        provider = trace.get_tracer_provider()
        is_off = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
        return None if is_off else provider.get_tracer(name)
    if not conf.getboolean("traces", "otel_on", fallback=False):
        return None
    # Airflow has a provider for each tracer, and one batch processor for all of them.
    tracer = import_module("airflow.traces.tracer").Trace.get_tracer(name)
    return tracer if isinstance(tracer, Tracer) else None


def with_span_id(span_id: int) -> AbstractContextManager[None]:
    """Give the span that is begun in this context its id. Airflow 3.1 makes one by chance."""
    if _AIRFLOW_VERSION < (3, 2):
        return nullcontext()
    override = import_module("airflow._shared.observability.traces").override_ids
    return cast("AbstractContextManager[None]", override(None, span_id))


def schedulers_dag(dag: DAG) -> SerializedDAG:
    """Return a Dag that was parsed as the scheduler knows it."""
    name = "SerializedDAG" if _AIRFLOW_VERSION < (3, 2) else "DagSerialization"
    serialization = getattr(import_module(_SERIALIZATION), name)
    return cast("SerializedDAG", serialization.from_dict(serialization.to_dict(dag)))


def queued_tasks(executor: Any) -> MutableMapping[Any, ExecuteTask]:
    """Return the tasks that were handed to an executor and have no slot yet, by their keys."""
    if _AIRFLOW_VERSION < (3, 4):
        return cast("MutableMapping[Any, ExecuteTask]", executor.queued_tasks)
    (tasks,) = TASKS_ALONE
    return cast("MutableMapping[Any, ExecuteTask]", executor.executor_queues[tasks])


def follow_new_id(executor: Any, key: TaskInstanceKey, old: str, new: str | None) -> None:
    """
    Have the reports about a task instance be about its new UUID, if it has one.

    Airflow 3.4 notes the UUID of what it hands over, and leaves out reports about a key that it has two for.
    """
    if new and hasattr(executor, "_task_coordinates"):
        kind = import_module("airflow.executors.workloads.types").TaskInstanceUuid
        executor._task_coordinates.pop(kind(UUID(old)), None)
        executor._task_coordinates[kind(UUID(new))] = key


CLIENT_TIMEOUT = 10.0
"""Seconds for a request of a synchronous client, which otherwise waits without limit, and tries eleven
times."""


def make_client(team_name: str | None) -> CoreV1Api:
    """Make a synchronous client, with the deployment's own factory where the provider knows of one."""
    # 10.24 brought [kubernetes_executor] client_factory and with it this function.
    if hasattr(kube_client, "_get_executor_kube_client"):
        return cast("CoreV1Api", kube_client._get_executor_kube_client(team_name=team_name))
    return cast("CoreV1Api", kube_client.get_kube_client())
