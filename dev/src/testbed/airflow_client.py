# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The few calls of Airflow's public REST API that a testbed needs."""

from __future__ import annotations

import json
from typing import Any

import httpx

REQUEST_TIMEOUT = 120.0
"""Seconds: with more workers than cores, answers take long."""


class AirflowClient:
    """
    A client of one Airflow API server on which everybody is an administrator.

    :param url: The address of the API server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.http = httpx.Client(base_url=f"{url}/api/v2", timeout=REQUEST_TIMEOUT)
        """For what there is no method for."""
        self.token = ""
        """Of an administrator, from :meth:`log_in` on."""

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def health(self) -> dict[str, Any]:
        """
        Return what each component reports about itself, empty while the API server does not answer.

        See https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/logging-monitoring/check-health.html
        """
        try:
            answer = self.http.get("/monitor/health")
        except httpx.TransportError:
            return {}
        body: dict[str, Any] = answer.json() if answer.is_success else {}
        return body

    def serves_workers(self) -> bool:
        """
        Tell whether the execution API answers.

        It is put together at the first request for it, which takes seconds, on a busy machine minutes. No
        worker should have to wait for that.
        """
        try:
            return self.http.get(f"{self._url}/execution/health").is_success
        except httpx.TransportError:
            return False

    def log_in(self) -> None:
        """Get a token; the simple auth manager gives one to everybody if all are administrators."""
        self.token = self._checked(self.http.get(f"{self._url}/auth/token"))["access_token"]
        self.http.headers["Authorization"] = f"Bearer {self.token}"

    def has_dag(self, dag_id: str) -> bool:
        """Tell whether the DAG processor has stored this DAG yet."""
        return self.http.get(f"/dags/{dag_id}").status_code == httpx.codes.OK

    def import_errors(self) -> list[str]:
        """Return the traceback of each DAG file that could not be parsed."""
        errors = self._checked(self.http.get("/importErrors"))["import_errors"]
        return [error["stack_trace"] for error in errors]

    def trigger(self, dag_id: str, run_id: str | None = None) -> str:
        """
        Start a run of a DAG.

        :param run_id: What to call it. None: Airflow finds a name.
        :return: The run id.
        :raises httpx.HTTPStatusError: If the API server refuses.
        """
        body = {"logical_date": None} | ({"dag_run_id": run_id} if run_id else {})
        return str(self._checked(self.http.post(f"/dags/{dag_id}/dagRuns", json=body))["dag_run_id"])

    def clear(self, dag_id: str, run_id: str, task_id: str, *, only_running: bool = False) -> int:
        """
        Clear the task instances of a task.

        :param only_running: Leave them alone unless they run.
        :return: How many were cleared.
        :raises httpx.HTTPStatusError: If the API server refuses.
        """
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [task_id],
            "only_failed": False,
            "only_running": only_running,
        }
        answer = self.http.post(f"/dags/{dag_id}/clearTaskInstances", json=body)
        return len(self._checked(answer)["task_instances"])

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """
        Mark a task instance as a success or as failed.

        :raises httpx.HTTPStatusError: If the API server refuses; 409 if it is in that state already.
        """
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self._checked(self.http.patch(path, json={"new_state": state}))

    def task_log(self, dag_id: str, run_id: str, task_id: str) -> list[str]:
        """Return the lines of the first try's log, asked for in the way that the UI does."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/1"
        answer = self.http.get(path, headers={"Accept": "application/x-ndjson"}).raise_for_status()
        return [json.loads(line)["event"] for line in answer.text.splitlines()]

    @staticmethod
    def _checked(answer: httpx.Response) -> dict[str, Any]:
        answer.raise_for_status()
        body: dict[str, Any] = answer.json()
        return body
