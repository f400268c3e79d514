# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Caches the common part of the worker pods of all tasks with one template, image and override.

The official provider takes several milliseconds to merge template, configuration and override, mostly for
copies of copies. Tasks with the same three get pods that differ only in name, labels and annotations, and in
the arguments of the worker container. So the pod is made once, and copied.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from kubernetes.client import ApiClient, Configuration, V1ObjectMeta, V1Pod

log = logging.getLogger(__name__)

LIMIT = 100
"""Entries that are kept. If all overrides are different, a pod costs what it costs without the cache."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Values on which the common part of a pod depends."""

    template: str
    """Path of the pod template file."""
    image: str
    override: V1Pod | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The part of a pod that is the task's own."""

    key: TaskInstanceKey
    name: str
    """Of the pod."""
    args: Sequence[str]
    """Of the worker container; not empty."""


_GAPS = Task(TaskInstanceKey("gap", "gap", "gap", 1, -1), "gap", ["gap"])
"""Placeholders in an entry for the part that is the task's own."""


class TemplateCache:
    """
    Makes worker pods as ``PodGenerator.construct_pod`` does, without the pod mutation hook.

    :param namespace: of the pods, unless an override names another one
    :param scheduler_job_id: this scheduler's job, by which its pods are labelled
    """

    def __init__(self, namespace: str, scheduler_job_id: str) -> None:
        self._namespace = namespace
        self._scheduler_job_id = scheduler_job_id
        self._serialize = ApiClient().sanitize_for_serialization
        self._templates: dict[Hashable, _CachedTemplate | None] = {}

    def make(self, pattern: Pattern, task: Task) -> V1Pod:
        """
        Make a pod that shares no part with another one.

        :raises OSError: if the template cannot be read
        :raises PodReconciliationError: if template and override cannot be merged
        """
        mark = self._mark(pattern)
        if mark not in self._templates:
            if len(self._templates) >= LIMIT:
                self._templates.clear()
            self._templates[mark] = self._cache(pattern, task)
        cached = self._templates[mark]
        return cached.fill(task) if cached else self._construct(pattern, _read(pattern), task)

    def _mark(self, pattern: Pattern) -> Hashable:
        """Return what is equal for equal patterns, as long as the template's file is not changed."""
        file = Path(pattern.template).stat()
        override = json.dumps(self._serialize(pattern.override))
        return pattern.template, file.st_ino, file.st_mtime_ns, file.st_size, pattern.image, override

    def _cache(self, pattern: Pattern, task: Task) -> _CachedTemplate | None:
        """Make an entry; None if the official provider would make another pod for the task."""
        template = _read(pattern)
        cached = _CachedTemplate(
            self._construct(pattern, template, _GAPS),
            template.metadata,
            pattern.override.metadata if pattern.override else None,
            self._scheduler_job_id,
        )
        official = self._construct(pattern, template, task)
        if self._serialize(cached.fill(task)) == self._serialize(official):
            return cached
        log.warning(
            "Pods with the template %s are built one by one: the installed version of the official provider "
            "brings more of a task to its pod than this one knows",
            pattern.template,
        )
        return None

    def _construct(self, pattern: Pattern, template: V1Pod, task: Task) -> V1Pod:
        dag_id, task_id, run_id, try_number, map_index = task.key
        return PodGenerator.construct_pod(
            namespace=self._namespace,
            scheduler_job_id=self._scheduler_job_id,
            pod_id=task.name,
            dag_id=dag_id,
            task_id=task_id,
            run_id=run_id,
            try_number=try_number,
            map_index=map_index,
            date=None,
            kube_image=pattern.image,
            args=list(task.args),
            pod_override_object=pattern.override,
            base_worker_pod=template,
        )


class _CachedTemplate:
    """
    A pod with placeholders.

    :param pod: one that was constructed for :data:`_GAPS`
    :param template: metadata that a task's own is added to
    :param override: metadata that is added to a task's own
    """

    def __init__(
        self, pod: V1Pod, template: V1ObjectMeta | None, override: V1ObjectMeta | None, job_id: str
    ) -> None:
        self._pod = pod
        self._template = template or V1ObjectMeta()
        self._override = override or V1ObjectMeta()
        self._job_id = job_id
        self._takes_name = pod.metadata.name == _GAPS.name
        self._takes_args = pod.spec.containers[0].args == _GAPS.args
        # Each object of the client's has a configuration, for nothing but the validation of its fields. To
        # copy that takes longer than to copy the pod.
        configuration = Configuration()
        _share(pod, configuration)
        self._not_copied = {id(configuration): configuration}

    def fill(self, task: Task) -> V1Pod:
        """Make a task's pod."""
        pod = copy.deepcopy(self._pod, dict(self._not_copied))
        metadata = pod.metadata
        if self._takes_name:
            metadata.name = task.name
        if self._takes_args:
            pod.spec.containers[0].args = list(task.args)
        metadata.labels = self._merged("labels", self._labels(task.key))
        metadata.annotations = self._merged("annotations", _annotations(task.key))
        return pod

    def _merged(self, field: str, own: dict[str, str]) -> dict[str, str]:
        return {**(getattr(self._template, field) or {}), **own, **(getattr(self._override, field) or {})}

    def _labels(self, key: TaskInstanceKey) -> dict[str, str]:
        labels: dict[str, str] = PodGenerator.build_labels_for_k8s_executor_pod(  # type: ignore[no-untyped-call]
            dag_id=key.dag_id,
            task_id=key.task_id,
            run_id=key.run_id,
            try_number=key.try_number,
            map_index=key.map_index,
            airflow_worker=self._job_id,
        )
        return labels


def _annotations(key: TaskInstanceKey) -> dict[str, str]:
    annotations = {
        "dag_id": key.dag_id,
        "task_id": key.task_id,
        "run_id": key.run_id,
        "try_number": str(key.try_number),
    }
    return annotations if key.map_index < 0 else {**annotations, "map_index": str(key.map_index)}


def _read(pattern: Pattern) -> V1Pod:
    return PodGenerator.deserialize_model_file(pattern.template)


def _share(model: Any, configuration: Configuration) -> None:
    """Give a model object, and all in it, one and the same client configuration."""
    if isinstance(model, list):
        for item in model:
            _share(item, configuration)
    elif hasattr(model, "openapi_types"):
        model.local_vars_configuration = configuration
        for field in model.openapi_types:
            _share(getattr(model, field), configuration)
