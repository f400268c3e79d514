# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A worker that takes a hundredth of the time of Airflow's: it stands in where hundreds are needed at once.

It is a mock of the worker process and of nothing else. It takes the workload that the executor has put into
the pod's arguments, and reports to Airflow's execution API that the task starts, is alive and has succeeded;
between the first and the last it does what :class:`testbed.work.Work` does, and notes it in the same journal.
A start that the API refuses ends it with exit code 1, as it ends Airflow's own.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any

from testbed.code_journal import code_name, folder_of_worker, recorded, release_file

HEARTBEAT_SECONDS = 5.0
HEARTBEAT_VARIABLE = "LIGHT_HEARTBEAT_SECONDS"
"""The environment variable that says how many seconds are between two heartbeats, if it is not so many."""

SECONDS_VARIABLE = "LIGHT_WORK_SECONDS"
"""The environment variable that says how long the work takes if nobody ends it before."""

LONGEST_WORK = 900.0
"""Seconds after which a task ends although no test told it to."""

REPEATED_FOR = 300.0
"""Seconds for which a call is repeated that finds no API server, or one in trouble, and that one may take."""


class ExecutionApi:
    """
    The calls about one task instance.

    .. seealso:: https://cwiki.apache.org/confluence/display/AIRFLOW/AIP-72+Task+Execution+Interface+aka+Task+SDK
    """

    def __init__(self, ti_id: str, token: str) -> None:
        base = os.environ["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"].rstrip("/")
        self._url = f"{base}/task-instances/{ti_id}"
        self._token = token
        self._process = {"hostname": os.environ.get("HOSTNAME", ""), "pid": os.getpid()}

    def start(self) -> None:
        """
        Say that the task starts.

        :raises urllib.error.HTTPError: if it may not
        """
        self._call(
            "PATCH", "run", {"state": "running", "unixname": "worker", "start_date": _now(), **self._process}
        )

    def heartbeat(self) -> None:
        """
        Say that the task is alive.

        :raises urllib.error.HTTPError: if it should not be
        """
        self._call("PUT", "heartbeat", self._process)

    def succeed(self) -> None:
        """Report the end."""
        self._call("PATCH", "state", {"state": "success", "end_date": _now()})

    def _call(self, method: str, path: str, body: dict[str, Any]) -> None:
        deadline = time.monotonic() + REPEATED_FOR
        while True:
            request = urllib.request.Request(  # noqa: S310 - the address is our own
                f"{self._url}/{path}", json.dumps(body).encode(), method=method
            )
            request.add_header("Content-Type", "application/json")
            request.add_header("Authorization", f"Bearer {self._token}")
            try:
                with urllib.request.urlopen(request, timeout=REPEATED_FOR) as answer:  # noqa: S310
                    # The token of the queue is good for the start only; another one comes with its answer.
                    self._token = answer.headers.get("Refreshed-API-Token") or self._token
                return
            except urllib.error.HTTPError as error:
                if error.code < 500 or time.monotonic() > deadline:
                    raise
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(1)


def main() -> int:
    """Run the workload of the command line."""
    workload = json.loads(sys.argv[sys.argv.index("--json-string") + 1])
    ti = workload["ti"]
    api = ExecutionApi(ti["id"], workload["token"])
    try:
        api.start()
    except urllib.error.HTTPError as error:
        print(f"not allowed to start: {error.code} {error.read().decode(errors='replace')}", flush=True)
        return 1
    try:
        with recorded(code_name(ti["dag_id"], ti["run_id"], ti["task_id"], ti.get("map_index", -1))):
            _work(api, ti["dag_id"])
        api.succeed()
    except urllib.error.HTTPError as error:
        # Cleared, marked or deleted. Airflow's worker ends its task then, and is content with itself.
        print(f"not to run any more: {error.code}", flush=True)
    return 0


def _work(api: ExecutionApi, dag_id: str) -> None:
    released = release_file(folder_of_worker() / dag_id)
    deadline = time.monotonic() + float(os.environ.get(SECONDS_VARIABLE, LONGEST_WORK))
    interval = float(os.environ.get(HEARTBEAT_VARIABLE, HEARTBEAT_SECONDS))
    next_heartbeat = time.monotonic() + interval
    while not released.exists() and time.monotonic() < deadline:
        time.sleep(0.5)
        if time.monotonic() >= next_heartbeat:
            next_heartbeat += interval
            api.heartbeat()


def _now() -> str:
    return datetime.now(UTC).isoformat()


if __name__ == "__main__":
    sys.exit(main())
