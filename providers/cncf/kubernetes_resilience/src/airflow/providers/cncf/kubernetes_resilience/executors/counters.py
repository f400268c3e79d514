# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Metrics of the executor beside the failures of tasks, with names of its own.

Metrics of calls to the Kubernetes API are the official executor's, in :mod:`...pods.thread.launcher`.
"""

from __future__ import annotations

from typing import Final

from airflow_resilience.metrics import Counter, Gauge

LAUNCH_FAILURES: Final = Counter(
    "kubernetes_executor.pod_launch_failures",
    ("action", "category", "reason", "cause"),
    "Workers that have failed before or under their task, and about which was decided.",
)
UNHANDLED_ERRORS: Final = Counter(
    "kubernetes_executor.unhandled_errors",
    ("step",),
    "What could not be handled.",
)
POLICY_FILE_ERRORS: Final = Counter(
    "kubernetes_executor.retry_policy_file_errors",
    (),
    "Versions of the policy file that could not be used.",
)

OUTAGES: Final = Gauge(
    "kubernetes_executor.outages",
    ("kind",),
    "What launches need and is away: registries, quotas, admission of namespaces, Airflow's API server.",
)
HELD_LAUNCHES: Final = Gauge(
    "kubernetes_executor.held_launches",
    ("kind",),
    "Launches that are held until it is back.",
)
SUSPECT_NODES: Final = Gauge(
    "kubernetes_executor.suspect_nodes",
    (),
    "Nodes that launches are kept away from, as others have failed there.",
)
