# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Reading the health report of an Airflow API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from cluster_lab.ports import free_port
from testbed.airflow_client import AirflowClient, heartbeat_of

REPORT: dict[str, Any] = {
    "metadatabase": {"status": "healthy"},
    "scheduler": {"status": "healthy", "latest_scheduler_heartbeat": "2026-11-20T12:00:00.5+00:00"},
    "triggerer": {"status": "unhealthy", "latest_triggerer_heartbeat": "2026-11-20T11:00:00+00:00"},
    "dag_processor": {"status": None, "latest_dag_processor_heartbeat": None},
}


def test_heartbeat_of_a_healthy_component() -> None:
    expected = datetime(2026, 11, 20, 12, 0, 0, 500_000, tzinfo=UTC)
    assert heartbeat_of(REPORT, "scheduler") == expected


@pytest.mark.parametrize("component", ["triggerer", "dag_processor", "never heard of"])
def test_no_heartbeat_of_a_component_that_is_not_well(component: str) -> None:
    assert heartbeat_of(REPORT, component) is None


def test_no_health_while_nobody_answers() -> None:
    client = AirflowClient(f"http://127.0.0.1:{free_port()}")
    assert client.health() == {}
    assert not client.serves_workers()
    client.close()


@pytest.mark.parametrize("status", [httpx.codes.OK, httpx.codes.CONFLICT])
def test_a_run_that_was_started_by_a_call_before_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    client = AirflowClient("http://127.0.0.1:1")

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json={"dag_run_id": "run-1"})

    monkeypatch.setattr(
        client, "http", httpx.Client(base_url="http://airflow", transport=httpx.MockTransport(answer))
    )
    assert client.trigger("dag", "run-1") == "run-1"
    client.close()
