# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The official executor, observed. In a module of its own: what ours imports is no part of its memory."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

from benchmarks.observed import Observed


class ObservedExecutor(Observed, KubernetesExecutor):
    """The official executor."""
