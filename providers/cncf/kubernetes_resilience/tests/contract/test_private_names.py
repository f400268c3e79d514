# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is not public of Airflow and of the official provider, and this executor stands on, is there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from airflow.providers.cncf.kubernetes_resilience.executors.upstream import (
    _AIRFLOW_VERSION,
    _PROVIDER,
    _SERIALIZATION,
    EXECUTOR_MODULE,
)

_EXECUTOR = f"{EXECUTOR_MODULE}:KubernetesExecutor"
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
        f"{_PROVIDER}.pod_generator:PodGenerator",
        "deserialize_model_file",
        "reads a pod template",
        ("path",),
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
    Seam(
        f"{_PROVIDER}.kubernetes_helper_functions",
        "create_unique_id",
        "names pods",
        ("dag_id", "task_id"),
    ),
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
        f"{_PROVIDER}.executors.kubernetes_executor_types",
        "POD_EXECUTOR_DONE_KEY",
        "label of pods done with",
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
    Seam(
        f"{_PROVIDER}.kube_client",
        "get_async_kube_client",
        "client of the informer and launcher",
        (),
    ),
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
    Seam(
        f"{_SERIALIZATION}:DagSerialization",
        "to_dict",
        "of one that was parsed",
        ("var",),
        since=(3, 2),
    ),
    Seam(f"{_SERIALIZATION}:SerializedDAG", "from_dict", "makes the scheduler's Dag", before=(3, 2)),
    Seam(
        f"{_SERIALIZATION}:SerializedDAG",
        "to_dict",
        "of one that was parsed",
        ("var",),
        before=(3, 2),
    ),
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


def broken(seams: Sequence[Seam]) -> Iterator[str]:
    """Yield a sentence for each seam that is not as this executor needs it."""
    for seam in seams:
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


def test_every_seam_is_there() -> None:
    assert list(broken(SEAMS)) == []


def test_seam_that_is_not_there_is_named() -> None:
    executor = "airflow.executors.base_executor:BaseExecutor"
    module, method, parameter = broken(
        [
            Seam("airflow.no_such_module", "anything", "one"),
            Seam(executor, "no_such_method", "two"),
            Seam(executor, "change_state", "three", ("key", "no_such_parameter")),
            Seam(executor, "comes_later", "four", since=(99, 0)),
        ]
    )
    assert "airflow.no_such_module.anything (one) is missing" in module
    assert "BaseExecutor.no_such_method (two) is missing" in method
    assert "BaseExecutor.change_state (three) has no parameter no_such_parameter" in parameter
