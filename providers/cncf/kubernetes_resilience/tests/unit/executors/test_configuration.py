# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A value that cannot be used stops the scheduler, with a message that says which, and what could be."""

from __future__ import annotations

import pytest
from airflow.exceptions import AirflowConfigException

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

LIMIT = "a whole number: 0 for none, -1 for no limit, or how many"
CONCURRENCY = "a whole number, 1 or more"
SILENCE = "a number of seconds, 90 or more"

BAD = [
    ("kubernetes_executor", "pod_launch_failure_retries", LIMIT, ["-2", "1.5", "often", ""]),
    ("kubernetes_executor", "task_publish_max_retries", LIMIT, ["-2", "0x1", "never"]),
    ("kubernetes_resilience", "api_concurrency", CONCURRENCY, ["0", "-1", "many", "2.0"]),
    ("kubernetes_resilience", "watch_inactivity_timeout", SILENCE, ["89", "0", "nan", "inf", "soon"]),
]


@pytest.mark.parametrize(
    ("section", "key", "allowed", "value"),
    [(section, key, allowed, value) for section, key, allowed, values in BAD for value in values],
)
def test_it_names_section_key_value_and_what_is_allowed(start, section, key, allowed, value):
    with pytest.raises(AirflowConfigException) as refused:
        start(**{f"{section.upper()}__{key.upper()}": value})
    for part in (f"[{section}]", key, repr(value), allowed):
        assert part in str(refused.value)


def test_nothing_was_started_then(start, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_RESILIENCE__API_CONCURRENCY", "0")
    executor = KubernetesExecutor()
    executor.job_id = 1
    with pytest.raises(AirflowConfigException):
        executor.start()
    assert executor._runtime is None
    executor.end()
