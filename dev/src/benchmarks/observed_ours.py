# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Our executor, observed."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from benchmarks.observed import Observed


class ObservedExecutor(Observed, KubernetesExecutor):
    """Our executor."""
