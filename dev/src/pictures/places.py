# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is seeded, and where it is shown."""

from __future__ import annotations

from urllib.parse import quote

RUN_ID = "manual__2026-11-21T06:00:00+00:00"
STORY = "sales_load"
"""A Dag whose task has met a bit of everything, and runs."""
QUIET = "hourly_health_check"
"""One whose task met no trouble."""
HELD = "weekly_invoices"
"""One whose launch is held, as a registry is away."""
UNTOUCHED = "nightly_cleanup"
"""One whose task was never launched."""

PREFIX = "kubernetes-resilience"
FAILURES = f"{PREFIX}/failures"


def launches(dag_id: str, task_id: str = "load", run_id: str = RUN_ID) -> str:
    """Return the address of the page about a task instance, below that of the API server."""
    # As Airflow's user interface has it for a task that is not mapped.
    return f"{PREFIX}/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/%7BMAP_INDEX%7D/launches"


AIRFLOW_FAILURES = "plugin/infrastructure-failures"
"""Where Airflow shows that page."""


def airflow_launches(dag_id: str, run_id: str, task_id: str) -> str:
    """Return where Airflow shows the launches of a task that is not mapped."""
    return f"dags/{quote(dag_id)}/runs/{quote(run_id)}/tasks/{quote(task_id)}/plugin/launches"
