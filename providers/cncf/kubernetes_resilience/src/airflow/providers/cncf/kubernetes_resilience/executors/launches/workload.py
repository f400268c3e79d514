# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A task's workload, as it is stored for another launch."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from airflow.executors.workloads import ExecuteTask
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

from airflow_resilience.retry_policy.selection import INFRASTRUCTURE_KEYS

_USUAL = (
    b'{"token":"","dag_rel_path":".py","bundle_info":{"name":"dags-folder"},"log_path":"dag_id=/run_id='
    b'manual__scheduled__2026-01-01T00:00:00+00:00/task_id=/map_index=/attempt=1.log","ti":{"id":"'
    b'00000000-0000-0000-0000-000000000000","task_id":"","dag_id":"","run_id":"","try_number":1,'
    b'"dag_version_id":"","map_index":,"context_carrier":{},"queue":"default","pool_slots":1,'
    b'"priority_weight":1}}'
)
"""Text that most workloads have in common: a dictionary for the compression."""

_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class StoredWorkload:
    """
    A job, stored in case that it has to be launched again. Most never are.

    The workload is the JSON that a worker is given, without default values, and compressed. This form takes a
    twentieth of the memory.
    """

    workload: bytes
    override: Any
    """``pod_override`` of the task, a ``V1Pod``; None without one."""
    template: str | None
    image: str | None
    options: dict[str, Any] | None
    """Options in the task's ``executor_config`` beside the override, which is not part of the workload's
    JSON."""

    @classmethod
    def of(cls, job: KubernetesJob) -> StoredWorkload:
        """Write down a job. Token and UUID are not stored: each launch gets its own."""
        workload: Any = job.command[0]  # the type hint is of Airflow 2
        ti = workload.ti.model_copy(update={"id": _NO_ID})
        workload = workload.model_copy(update={"token": "", "ti": ti})
        compressor = zlib.compressobj(zdict=_USUAL)
        packed = compressor.compress(workload.model_dump_json(exclude_defaults=True).encode())
        return cls(
            packed + compressor.flush(),
            job.kube_executor_config,
            job.pod_template_file,
            job.kube_image,
            _options(workload.ti),
        )

    def job(self, key: TaskInstanceKey, ti_id: str) -> KubernetesJob:
        """
        Return the job of a task instance, to be launched again.

        :param ti_id: the task instance's UUID, which is another one if it had been running
        """
        workload = ExecuteTask.model_validate_json(self._unpacked())
        workload.ti.id = UUID(ti_id)
        workload.ti.executor_config = self.options
        command: Any = [workload]
        return KubernetesJob(key, command, self.override, self.template, self.image)

    def trace_carrier(self) -> dict[str, Any] | None:
        """Return the W3C trace context of the task instance's span; None if it has none."""
        carrier: dict[str, Any] | None = json.loads(self._unpacked())["ti"].get("context_carrier")
        return carrier

    def _unpacked(self) -> bytes:
        return zlib.decompressobj(zdict=_USUAL).decompress(self.workload)


def _options(ti: Any) -> dict[str, Any] | None:
    config = getattr(ti, "executor_config", None)
    if not isinstance(config, dict):
        return None
    return {key: value for key, value in config.items() if key in INFRASTRUCTURE_KEYS} or None
