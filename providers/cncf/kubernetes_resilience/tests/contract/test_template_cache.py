# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Pods from the template cache are the pods that the installed version of the official provider makes.

Needs no database, no cluster and none of the contributor tools: it is run with each supported version.
"""

from __future__ import annotations

import json
import logging
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowException
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from kubernetes.client import ApiClient, Configuration
from kubernetes.client import models as k8s

from airflow.providers.cncf.kubernetes_resilience.executors.creation import template_cache
from airflow.providers.cncf.kubernetes_resilience.executors.creation.template_cache import (
    Pattern,
    Task,
    TemplateCache,
)

LONG = "a-run-whose-name-is-longer-than-what-a-label-may-have-and-has-colons:" + "x" * 30

TASKS = (
    Task(TaskInstanceKey("sales", "load", "manual__2026-03-01T08:00:00+00:00", 1, -1), "sales-load-1", ["a"]),
    Task(TaskInstanceKey("sales", "load", LONG, 3, 0), "sales-load-2", ["a", "b"]),
    Task(TaskInstanceKey("_odd dag", "tâche", "r", 2, 17), "odd-3", ["c"]),
)

TEMPLATES: dict[str, dict[str, Any]] = {
    "small": {"spec": {"containers": [{"name": "base", "image": "airflow:template"}]}},
    "named": {
        "metadata": {
            "name": "worker",
            "namespace": "elsewhere",
            "labels": {"team": "sales", "dag_id": "of the template"},
            "annotations": {"prometheus.io/scrape": "true", "run_id": "of the template"},
        },
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [
                {"name": "git-sync", "image": "git-sync", "env": [{"name": "A", "value": "1"}]}
            ],
            "containers": [
                {
                    "name": "base",
                    "image": "airflow:template",
                    "args": ["of the template"],
                    "env": [{"name": "B", "value": "2"}],
                    "envFrom": [{"secretRef": {"name": "secret"}}],
                    "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
                },
                {"name": "sidecar", "image": "sidecar"},
            ],
            "volumes": [{"name": "logs", "emptyDir": {}}],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
    },
}

OVERRIDES: dict[str, k8s.V1Pod | None] = {
    "none": None,
    "empty": k8s.V1Pod(),
    "metadata": k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(
            name="pinned",
            namespace="pinned",
            labels={"task_id": "of the override"},
            annotations={"dag_id": "of the override", "more": "yes"},
        )
    ),
    "spec": k8s.V1Pod(
        spec=k8s.V1PodSpec(
            containers=[
                k8s.V1Container(
                    name="base",
                    image="airflow:override",
                    env=[k8s.V1EnvVar(name="C", value="3")],
                    resources=k8s.V1ResourceRequirements(requests={"cpu": "1"}),
                )
            ],
            init_containers=[k8s.V1Container(name="git-sync", image="git-sync:2")],
            volumes=[k8s.V1Volume(name="more", empty_dir={})],
            priority_class_name="high",
        )
    ),
    "arguments": k8s.V1Pod(
        spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="base", args=["of the override"])])
    ),
}


@pytest.fixture(params=TEMPLATES)
def template(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return write(tmp_path / "template.yaml", TEMPLATES[request.param])


def write(path: Path, template: Any) -> str:
    path.write_text(json.dumps(template))
    return str(path)


def official(pattern: Pattern, task: Task) -> dict[str, Any]:
    dag_id, task_id, run_id, try_number, map_index = task.key
    return serialized(
        PodGenerator.construct_pod(
            dag_id=dag_id,
            task_id=task_id,
            run_id=run_id,
            try_number=try_number,
            map_index=map_index,
            pod_id=task.name,
            kube_image=pattern.image,
            date=None,
            args=list(task.args),
            pod_override_object=pattern.override,
            base_worker_pod=PodGenerator.deserialize_model_file(pattern.template),
            namespace="workers",
            scheduler_job_id="7",
        )
    )


def serialized(pod: k8s.V1Pod) -> dict[str, Any]:
    manifest: dict[str, Any] = ApiClient().sanitize_for_serialization(pod)
    return manifest


@pytest.fixture
def pods() -> TemplateCache:
    return TemplateCache("workers", "7")


@pytest.mark.parametrize("override", OVERRIDES)
def test_pod_is_the_official_one(pods: TemplateCache, template: str, override: str) -> None:
    pattern = Pattern(template, "airflow:configured", OVERRIDES[override])
    for task in (*TASKS, *TASKS):
        assert serialized(pods.make(pattern, task)) == official(pattern, task)


def test_each_pattern_has_a_template_of_its_own(
    pods: TemplateCache, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    constructed: list[str] = []
    construct = PodGenerator.construct_pod

    def counting(**arguments: Any) -> k8s.V1Pod:
        constructed.append(arguments["pod_id"])
        return construct(**arguments)

    monkeypatch.setattr(PodGenerator, "construct_pod", counting)
    patterns = [
        Pattern(template, image, override)
        for image, override in product(("airflow:1", "airflow:2"), OVERRIDES.values())
    ]
    for pattern in (*patterns, *patterns):
        pods.make(pattern, TASKS[0])
    assert len(constructed) == 2 * len(patterns), "one for the cache, and one that it is compared with"


def test_pod_belongs_to_who_asked_for_it(pods: TemplateCache, template: str) -> None:
    override = OVERRIDES["spec"]
    before = serialized(override)
    pattern = Pattern(template, "airflow:configured", override)
    first = pods.make(pattern, TASKS[0])
    first.spec.containers[0].env.append(k8s.V1EnvVar(name="OF_A_HOOK", value="1"))
    first.spec.volumes.clear()
    first.metadata.labels["of"] = "a hook"
    assert serialized(pods.make(pattern, TASKS[0])) == official(pattern, TASKS[0])
    assert serialized(override) == before


def test_template_that_is_changed_is_read_again(pods: TemplateCache, tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    pattern = Pattern(write(path, TEMPLATES["small"]), "airflow:configured")
    pods.make(pattern, TASKS[0])
    status = path.stat()
    write(path, TEMPLATES["named"])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert serialized(pods.make(pattern, TASKS[0])) == official(pattern, TASKS[0])


def test_template_that_is_not_there_is_an_error_each_time(pods: TemplateCache, tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    pattern = Pattern(str(path), "airflow:configured")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            pods.make(pattern, TASKS[0])
    write(path, TEMPLATES["small"])
    assert serialized(pods.make(pattern, TASKS[0])) == official(pattern, TASKS[0])


def test_override_that_cannot_be_merged_is_an_error_each_time(pods: TemplateCache, template: str) -> None:
    override = k8s.V1Pod(spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="base")]))
    override.spec.volumes = "not a list"
    write(Path(template), {"spec": {**TEMPLATES["small"]["spec"], "volumes": [{"name": "logs"}]}})
    for _ in range(2):
        with pytest.raises(AirflowException):
            pods.make(Pattern(template, "airflow:configured", override), TASKS[0])


def test_provider_that_brings_more_of_a_task_to_its_pod_has_its_way(
    pods: TemplateCache, template: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    construct = PodGenerator.construct_pod

    def of_another_version(**arguments: Any) -> k8s.V1Pod:
        pod = construct(**arguments)
        pod.spec.containers[0].env.append(k8s.V1EnvVar(name="TASK", value=arguments["task_id"]))
        return pod

    monkeypatch.setattr(PodGenerator, "construct_pod", of_another_version)
    pattern = Pattern(template, "airflow:configured")
    with caplog.at_level(logging.WARNING, logger=template_cache.__name__):
        for task in TASKS:
            assert serialized(pods.make(pattern, task)) == official(pattern, task)
    assert len([record for record in caplog.records if record.name == template_cache.__name__]) == 1


def test_no_more_templates_are_kept_than_needed(
    pods: TemplateCache, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_cache, "LIMIT", 2)
    for image in ("airflow:1", "airflow:2", "airflow:3"):
        pattern = Pattern(template, image)
        assert serialized(pods.make(pattern, TASKS[0])) == official(pattern, TASKS[0])
        assert len(pods._templates) <= 2


def test_client_configuration_need_not_be_picklable(pods: TemplateCache, template: str) -> None:
    configuration = Configuration()
    configuration.refresh_api_key_hook = lambda _: None  # in a cluster, the client's own
    override = k8s.V1Pod(metadata=k8s.V1ObjectMeta(labels={"a": "b"}), local_vars_configuration=configuration)
    pattern = Pattern(template, "airflow:configured", override)
    assert serialized(pods.make(pattern, TASKS[0])) == official(pattern, TASKS[0])
