# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Everything of Airflow and of the official provider that is not public and that this executor stands on.

The contract test checks the list against every supported version, so that a release that moves one of
these fails with its name, and not with a lost task.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
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

_EXECUTOR = f"{EXECUTOR_MODULE}:KubernetesExecutor"
_SERIALIZATION = "airflow.serialization.serialized_objects"
_KUBE_CONFIG = f"{_PROVIDER}.kube_config:KubeConfig"


@dataclass(frozen=True, slots=True)
class Seam:
    """One thing that is called, overridden or read."""

    owner: str
    """``module:Class`` or ``module``."""
    name: str
    why: str
    parameters: tuple[str, ...] | None = None
    """Parameters that must be there by name (``self`` left out); None if it is not a callable."""
    since: tuple[int, int] = (3, 1)
    """First version of Airflow that has it; before, this executor does without."""
    before: tuple[int, int] = (4, 0)
    """First version of Airflow that this executor does without it in."""


SEAMS = (
    Seam(_EXECUTOR, "execute_async", "extended", ("key", "command", "queue", "executor_config")),
    Seam(_EXECUTOR, "start", "replaced", ()),
    Seam(_EXECUTOR, "sync", "replaced", ()),
    Seam(_EXECUTOR, "end", "replaced", ()),
    Seam(_EXECUTOR, "revoke_task", "replaced", ("ti",)),
    Seam(_EXECUTOR, "try_adopt_task_instances", "replaced", ("tis",)),
    Seam(_EXECUTOR, "get_streaming_task_log", "replaced", ("ti", "try_number")),
    Seam(
        _EXECUTOR, "_process_workloads", "moves workloads from queued_tasks to execute_async", ("workloads",)
    ),
    Seam(_EXECUTOR, "_make_safe_label_value", "writes the label of the scheduler's pods", ("input_value",)),
    Seam(_EXECUTOR, "_get_pod_namespace", "says where a task's pods are", ("ti",)),
    Seam(
        f"{_PROVIDER}.pod_generator:PodGenerator",
        "construct_pod",
        "merges template, configuration and override",
        (
            *("namespace", "scheduler_job_id", "pod_id", "dag_id", "task_id", "run_id", "try_number"),
            *("map_index", "date", "kube_image", "args", "pod_override_object", "base_worker_pod"),
        ),
    ),
    Seam(
        f"{_PROVIDER}.pod_generator:PodGenerator", "deserialize_model_file", "reads a pod template", ("path",)
    ),
    Seam(
        f"{_PROVIDER}.pod_generator:PodGenerator",
        "deserialize_model_dict",
        "gives a relaunch its node affinity before the mutation hook sees it",
        ("pod_dict",),
    ),
    Seam(
        f"{_PROVIDER}.pod_generator:PodGenerator",
        "build_labels_for_k8s_executor_pod",
        "labels worker pods",
        ("dag_id", "task_id", "run_id", "try_number", "map_index", "airflow_worker"),
    ),
    Seam(f"{_PROVIDER}.pod_generator:PodGenerator", "serialize_pod", "pod to JSON", ("pod",)),
    Seam(
        f"{_PROVIDER}.pod_generator",
        "workload_to_command_args",
        "makes the worker container's arguments",
        ("workload",),
    ),
    Seam(f"{_PROVIDER}.kubernetes_helper_functions", "create_unique_id", "names pods", ("dag_id", "task_id")),
    Seam(
        f"{_PROVIDER}.kubernetes_helper_functions",
        "annotations_for_logging_task_metadata",
        "leaves annotations out of the log where the deployment wants that",
        ("annotation_set",),
    ),
    Seam(
        "airflow._shared.secrets_masker",
        "redact",
        "masks the messages of containers before they are logged and stored",
        ("value",),
    ),
    Seam("airflow.settings", "pod_mutation_hook", "applied to each worker pod", ("pod",)),
    Seam(
        f"{_PROVIDER}.executors.kubernetes_executor_types:KubernetesJob",
        "_fields",
        "key, command, kube_executor_config, pod_template_file, kube_image",
    ),
    Seam(
        f"{_PROVIDER}.executors.kubernetes_executor_types", "POD_EXECUTOR_DONE_KEY", "label of pods done with"
    ),
    Seam(
        f"{_PROVIDER}.pod_generator:PodGenerator",
        "build_selector_for_k8s_executor_pod",
        "selects the pods of one try",
        ("dag_id", "task_id", "try_number", "map_index", "run_id"),
    ),
    Seam(
        f"{_PROVIDER}.kubernetes_helper_functions",
        "add_unique_suffix",
        "frees a name that is taken",
        ("name",),
    ),
    Seam(f"{_PROVIDER}.kube_client", "get_kube_client", "client for reading logs", ()),
    Seam(f"{_PROVIDER}.kube_client", "get_async_kube_client", "client of the informer and launcher", ()),
    Seam(_KUBE_CONFIG, "__init__", "reads [kubernetes_executor]", ("executor_conf",)),
    Seam(
        "airflow.executors.base_executor:BaseExecutor",
        "change_state",
        "reports to the scheduler",
        ("key", "state", "info"),
    ),
    Seam(
        "airflow.jobs.scheduler_job_runner:SchedulerJobRunner",
        "process_executor_events",
        "counts the events that it leaves over",
    ),
    Seam(
        "airflow.executors.base_executor:BaseExecutor", "queue_workload", "extended", ("workload", "session")
    ),
    Seam("airflow.executors.base_executor:BaseExecutor", "jwt_generator", "signs workload tokens"),
    Seam(
        "airflow.executors.base_executor:BaseExecutor",
        "supports_task_instance_uuid",
        "has task instances known by their keys",
        since=(3, 4),
    ),
    Seam(
        "airflow.executors.workloads.types:TaskInstanceUuid",
        "__init__",
        "the key of what is handed over, for which _task_coordinates has another one",
        since=(3, 4),
    ),
    Seam("airflow.executors.workloads:WorkloadType", "EXECUTE_TASK", "the queue of the tasks", since=(3, 4)),
    Seam(
        "airflow.executors.workloads:ExecuteTask",
        "generate_token",
        "makes a token that is valid from now on",
        ("sub_id", "generator"),
        since=(3, 2),
    ),
    Seam("airflow.api_fastapi.auth.tokens:JWTGenerator", "generate", "the same, before 3.2", ("extras",)),
    Seam("airflow.models.dag:DagTag", "name", "selects retry policies"),
    Seam("airflow.models.serialized_dag:SerializedDagModel", "get", "shows a task's policies", ("dag_id",)),
    Seam(
        "airflow.executors.executor_loader:ExecutorLoader",
        "get_executor_names",
        "tells which other executors there are",
    ),
    Seam("airflow.cli.cli_config", "lazy_load_command", "keeps the airflow command quick", ("import_path",)),
    Seam("airflow.utils.cli", "suppress_logs_and_warning", "keeps logs out of the output", ("f",)),
    Seam("airflow.utils.cli", "get_bagged_dag", "parses the file of a Dag", ("bundle_names", "dag_id")),
    Seam(f"{_SERIALIZATION}:DagSerialization", "from_dict", "makes the scheduler's Dag", since=(3, 2)),
    Seam(f"{_SERIALIZATION}:DagSerialization", "to_dict", "of one that was parsed", ("var",), since=(3, 2)),
    Seam(f"{_SERIALIZATION}:SerializedDAG", "from_dict", "makes the scheduler's Dag", before=(3, 2)),
    Seam(f"{_SERIALIZATION}:SerializedDAG", "to_dict", "of one that was parsed", ("var",), before=(3, 2)),
    Seam("airflow.utils.session", "create_session", "session apart from the scheduler's", ("scoped",)),
    Seam(
        "airflow.traces.tracer:Trace",
        "get_tracer",
        "makes spans of launches; from 3.2 on OpenTelemetry itself is asked",
        ("component",),
        before=(3, 2),
    ),
    Seam(
        "airflow._shared.observability.traces",
        "override_ids",
        "makes the span of a launch the same one in two schedulers",
        ("trace_id", "span_id"),
        since=(3, 2),
    ),
    Seam("airflow.utils.sqlalchemy", "with_row_locks", "row locks where the database has them", ("query",)),
)


def broken_seams() -> Iterator[str]:
    """Yield a sentence for each seam that is not as this executor needs it."""
    for seam in SEAMS:
        if not seam.since <= _AIRFLOW_VERSION < seam.before:
            continue
        module, _, class_ = seam.owner.partition(":")
        try:
            owner = import_module(module)
            found = getattr(getattr(owner, class_) if class_ else owner, seam.name)
        except (ImportError, AttributeError) as error:
            yield f"{seam.owner}.{seam.name} ({seam.why}) is missing: {error}"
            continue
        if seam.parameters is not None:
            missing = set(seam.parameters) - set(inspect.signature(found).parameters)
            if missing:
                yield f"{seam.owner}.{seam.name} ({seam.why}) has no parameter {', '.join(sorted(missing))}"


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
    # It has a provider for each tracer, and one batch processor for all of them.
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
    queues = import_module("airflow.executors.workloads").WorkloadType
    return cast("MutableMapping[Any, ExecuteTask]", executor.executor_queues[queues.EXECUTE_TASK])


def follow_new_id(executor: Any, key: TaskInstanceKey, old: str, new: str | None) -> None:
    """
    Have the reports about a task instance be about its new UUID, if it has one.

    Airflow 3.4 notes the UUID of what it hands over, and leaves out reports about a key that it has two for.
    """
    if new and hasattr(executor, "_task_coordinates"):
        kind = import_module("airflow.executors.workloads.types").TaskInstanceUuid
        executor._task_coordinates.pop(kind(UUID(old)), None)
        executor._task_coordinates[kind(UUID(new))] = key


def make_client(team_name: str | None) -> CoreV1Api:
    """Make a synchronous client, with the deployment's own factory where the provider knows of one."""
    # 10.24 brought [kubernetes_executor] client_factory and with it this function.
    if hasattr(kube_client, "_get_executor_kube_client"):
        return cast("CoreV1Api", kube_client._get_executor_kube_client(team_name=team_name))
    return cast("CoreV1Api", kube_client.get_kube_client())
