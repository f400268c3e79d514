# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A worker as it is in a container, with Airflow's own supervisor and task runner: what does it report?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow import __version__ as airflow_version
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.propagation.stored import PREVIOUS_FAILURE, XCOM_KEY, StoredContext
from airflow_resilience.termination.environment import GRACE_PERIOD, INFRASTRUCTURE_RETRY
from testbed.waiting import LONGEST_WAIT, wait_for

RUN_ID = "manual"
EXECUTE_WORKLOAD = [sys.executable, "-m", "airflow.sdk.execution_time.execute_workload", "--json-string"]
"""What a container runs, and lacks only the workload."""

GUARDED = {INFRASTRUCTURE_RETRY: "1", GRACE_PERIOD: "600"}
HELD = "which is not reported"
VERSION = tuple(map(int, airflow_version.split(".")[:2]))
FORWARDS_SIGTERM = VERSION >= (3, 3)


class ExecutionApi(ThreadingHTTPServer):
    """As much of Airflow's execution API as a worker needs, with one task instance."""

    def __init__(self, *, retries: int, next_method: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ti_id = str(uuid.uuid4())
        self.retries, self.next_method = retries, next_method
        self.state: str | None = "running"
        self.asked = 0
        self.reports: list[str] = []
        """States that were reported, in order."""
        self.failure: dict[str, Any] | None = None
        """Why the task has failed, as it was stored before the report."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/execution/"


class _Handler(BaseHTTPRequestHandler):
    server: ExecutionApi
    protocol_version = "HTTP/1.1"

    def do_PATCH(self) -> None:
        body = self._body()
        if self.path.endswith("/run"):
            self._reply(200, self._run_context())
            return
        if self.path.endswith("/state"):
            self.server.reports.append(body["state"])
        self._reply(204)

    def do_PUT(self) -> None:
        self._body()
        if self.path.endswith("/heartbeat") and self.server.state != "running":
            self._reply(409, {"detail": {"reason": "not_running", "current_state": self.server.state}})
        else:
            self._reply(201 if self.path.endswith("/rtif") else 204, None)

    def do_POST(self) -> None:
        body = self._body()
        if self.path.partition("?")[0].endswith(XCOM_KEY):
            assert self.server.reports == [], "it is stored before anybody is told"
            self.server.failure = json.loads(body)["context"]
        self._reply(201, "OK")

    def do_GET(self) -> None:
        assert "/task-instances/states" in self.path
        self.server.asked += 1
        task_id = self.path.split("task_ids=")[1].split("&")[0]
        states = {} if self.server.state is None else {task_id: self.server.state}
        self._reply(200, {"task_states": {RUN_ID: states}})

    def _run_context(self) -> dict[str, Any]:
        now = "2026-01-01T00:00:00Z"
        return {
            "dag_run": {
                "dag_id": "workers",
                "run_id": RUN_ID,
                "logical_date": now,
                "data_interval_start": now,
                "data_interval_end": now,
                "run_after": now,
                "start_date": now,
                "end_date": None,
                "run_type": "manual",
                "state": "running",
                "consumed_asset_events": [],
                **({} if VERSION < (3, 2) else {"partition_key": None}),
            },
            "max_tries": self.server.retries,
            "should_retry": self.server.retries > 0,
            "next_method": self.server.next_method,
            "next_kwargs": {} if self.server.next_method else None,
        }

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "null")

    def _reply(self, status: int, content: Any = None) -> None:
        data = b"" if status == 204 else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        if data:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class Worker:
    """A worker's processes: the supervisor, which is what a container starts, and its children."""

    def __init__(self, api: ExecutionApi, task_id: str, home: Path, environment: dict[str, str]) -> None:
        self._begun, self._output = home / "begun", home / "output"
        self._runs_bash = task_id == "bash"
        workload = {
            "type": "ExecuteTask",
            "token": "token",
            "dag_rel_path": "workers.py",
            "bundle_info": {"name": "dags-folder"},
            "log_path": None,
            "ti": {
                "id": api.ti_id,
                "dag_version_id": str(uuid.uuid4()),
                "dag_id": "workers",
                "run_id": RUN_ID,
                "task_id": task_id,
                "try_number": 1,
                "map_index": -1,
                "pool_slots": 1,
                "queue": "default",
                "priority_weight": 1,
            },
        }
        with self._output.open("wb") as output:
            self._process = psutil.Popen(
                [*EXECUTE_WORKLOAD, json.dumps(workload)],
                env={
                    **os.environ,
                    "AIRFLOW_HOME": str(home),
                    "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "dags"),
                    "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": api.url,
                    # A request that is repeated only since the machine is busy would be counted twice.
                    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": str(LONGEST_WAIT),
                    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MIN": "0.1",
                    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "0.1",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "TEST_BEGUN": str(self._begun),
                    **environment,
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=home,
            )

    def wait_until_begun(self) -> None:
        self._wait_until("the task has begun", self._begun.exists)
        if self._runs_bash:
            # The process has begun a moment before its operator knows it, and could end it.
            self.wait_for_output("Output:")

    def wait_for_output(self, text: str) -> None:
        self._wait_until(f"the output has {text!r}", lambda: text in self.output)

    def terminate(self) -> None:
        """As the kubelet begins: to the container's first process."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As the kubelet ends: all processes of the container."""
        for process in [self._process, *self._process.children(recursive=True)]:
            process.kill()
        self._process.wait(LONGEST_WAIT)

    def wait(self) -> int:
        return self._process.wait(LONGEST_WAIT)

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        def reached() -> bool:
            if condition():
                return True
            assert self.is_alive(), f"the worker ended before {what}:\n{self.output}"
            return False

        wait_for(what, reached, show=lambda: self.output)


Start = Callable[..., tuple[ExecutionApi, Worker]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[tuple[ExecutionApi, Worker]] = []

    def start(
        task_id: str,
        environment: dict[str, str] = GUARDED,
        *,
        retries: int = 0,
        next_method: str | None = None,
        previous: ExecutionContext | None = None,
    ) -> tuple[ExecutionApi, Worker]:
        api = ExecutionApi(retries=retries, next_method=next_method)
        if previous:
            told = StoredContext(api.ti_id, 1, previous)
            environment = {**environment, PREVIOUS_FAILURE: json.dumps(told.to_dict())}
        threading.Thread(target=api.serve_forever, name="execution-api", daemon=True).start()
        begun.append((api, Worker(api, task_id, tmp_path, environment)))
        return begun[-1]

    yield start
    for api, worker in begun:
        if worker.is_alive():
            worker.kill()
        api.shutdown()
        api.server_close()


def told(api: ExecutionApi) -> tuple[str, str, str]:
    assert api.failure
    return api.failure["category"], api.failure["reason"], api.failure["source"]


@pytest.mark.parametrize("retries", [0, pytest.param(1, marks=pytest.mark.long)])
def test_an_operator_that_on_kill_breaks_reports_nothing(start, retries):
    api, worker = start("bash", retries=retries)
    worker.wait_until_begun()
    worker.terminate()
    worker.wait_for_output(HELD)
    worker.kill()
    assert api.reports == []
    assert api.asked == 1


@pytest.mark.parametrize(
    ("retries", "report"), [(0, "failed"), pytest.param(1, "up_for_retry", marks=pytest.mark.long)]
)
def test_without_a_budget_it_reports_what_airflow_does(start, retries, report):
    api, worker = start("bash", {}, retries=retries)
    worker.wait_until_begun()
    worker.terminate()
    worker.wait()
    assert api.reports == [report]
    assert api.asked == 1, "why the task has failed is stored"
    assert told(api) == ("INFRASTRUCTURE", "WORKER_TERMINATION", "WORKER")


@pytest.mark.long
def test_a_task_that_goes_on_after_a_deferral_is_guarded_too(start):
    api, worker = start("stops_after_deferral", next_method="resumed")
    worker.wait_until_begun()
    worker.terminate()
    worker.wait_for_output(HELD)
    worker.kill()
    assert api.reports == []


def test_a_task_that_finishes_within_its_grace_period_is_a_success(start):
    api, worker = start("finishes")
    worker.wait_until_begun()
    worker.terminate()
    assert worker.wait() == 0
    assert api.reports == ["success"]
    assert api.asked == 0


def test_on_kill_is_told_of_an_execution_timeout(start):
    api, worker = start("asks_why_with_timeout", {})
    worker.wait()
    assert api.asked == 0
    assert "on_kill: TIMEOUT / EXECUTION_TIMEOUT / WORKER" in worker.output
    assert "asked: TIMEOUT / EXECUTION_TIMEOUT / WORKER" in worker.output
    assert told(api) == ("TIMEOUT", "EXECUTION_TIMEOUT", "WORKER")
    assert "callback: TIMEOUT / EXECUTION_TIMEOUT / WORKER" in worker.output


def test_a_failure_before_the_operators_code_is_told_and_stored(start):
    api, worker = start("cannot_be_rendered", {})
    worker.wait()
    assert api.reports == ["failed"]
    assert "callback: APPLICATION / TASK_ERROR / WORKER" in worker.output
    assert told(api) == ("APPLICATION", "TASK_ERROR", "WORKER")
    assert api.failure["metadata"]["exception"] == "jinja2.exceptions.UndefinedError"


@pytest.mark.parametrize("environment", [GUARDED, pytest.param({}, marks=pytest.mark.long)])
def test_on_kill_is_told_of_a_user(start, environment):
    api, worker = start("asks_why", environment, retries=1)
    worker.wait_until_begun()
    api.state = "restarting"
    worker.wait()
    assert "on_kill: USER_ACTION / MANUAL_CLEAR / API" in worker.output
    assert "asked: USER_ACTION / MANUAL_CLEAR / API" in worker.output
    assert HELD not in worker.output


@pytest.mark.skipif(not FORWARDS_SIGTERM, reason="the supervisor ends at once")
@pytest.mark.parametrize("environment", [{}, pytest.param(GUARDED, marks=pytest.mark.long)])
def test_on_kill_is_told_of_infrastructure(start, environment):
    api, worker = start("asks_why", environment)
    worker.wait_until_begun()
    worker.terminate()
    worker.wait_for_output("asked: INFRASTRUCTURE / WORKER_TERMINATION / WORKER")
    assert "on_kill: INFRASTRUCTURE / WORKER_TERMINATION / WORKER" in worker.output
    if environment:
        worker.wait_for_output(HELD)
        worker.kill()
    else:
        worker.wait()
    assert api.reports == ([] if environment else ["success"])
    assert api.failure is None


def test_the_next_run_is_told_why_there_is_one(start):
    lost = ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_LOST, ContextSource.EXECUTOR
    )
    api, worker = start("tells_why", {}, previous=lost)
    worker.wait()
    assert api.reports == ["success"]
    assert "macro: WORKER_LOST" in worker.output
