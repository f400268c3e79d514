# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The official executor's metrics of API calls. They keep their names, so that dashboards keep working."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow_resilience.metrics import stats


@contextmanager
def measured(
    operation: Literal["pod_creation", "pod_deletion", "pod_patching"], team_name: str | None
) -> Iterator[None]:
    """
    Time one API call and count its outcome by HTTP status (``error`` if there was no answer).

    .. seealso:: https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/logging-monitoring/metrics.html
    """
    tags = {"team_name": team_name} if team_name else {}
    status = "error"
    try:
        with stats().timer(f"kubernetes_executor.{operation}", tags=tags):
            yield
        status = "200"
    except KubernetesApiError as error:
        status = str(error.status or status)
        raise
    finally:
        stats().incr(f"kubernetes_executor.{operation}_status", tags={**tags, "status": status})
