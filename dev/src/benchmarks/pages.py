# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m benchmarks.pages``: how long the API server takes for what the pages ask.

The audit log has a million rows of three months. 100,000 of them are the ledger's, about as many tasks, and
30,000 are about tasks that failed without losing a pod.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from statistics import median, quantiles

from rich.table import Table

from pictures.api_server import open_api_server
from pictures.places import RUN_ID, STORY
from testbed.airflow_deployment import AirflowDeployment
from testbed.database import execute
from testbed.terminal import make_console

AUDIT_ROWS = 1_000_000
LEDGER_ROWS = 100_000
TASK_FAILURES = 30_000
DAYS = 90
DAG = "ingest_clickstream"
REQUESTS = 20

_INSTANCES = f"""
INSERT INTO task_instance
SELECT (jsonb_populate_record(template, jsonb_build_object('id', gen_random_uuid(), 'map_index', number))).*
FROM task_instance template, generate_series(1000, 1000 + {LEDGER_ROWS} - 1) number
WHERE template.dag_id = '{DAG}' AND template.map_index = 0
"""  # noqa: S608 - of constants
_FAILURES = """
INSERT INTO log (dttm, dag_id, task_id, run_id, map_index, try_number, event, extra)
SELECT now() - number * interval '{days} days' / {rows}, dag_id, task_id, run_id, 1000 + number, 1,
       event, extra
FROM generate_series({rows} - 1, 0, -1) number
JOIN (SELECT *, row_number() OVER (ORDER BY id) - 1 AS place, count(*) OVER () AS places FROM log
      WHERE dag_id = '{dag}' AND event LIKE '{event}' AND map_index < 1000) template
  ON number % places = place
ORDER BY number DESC
"""
_LEDGER = _FAILURES.format(days=DAYS, rows=LEDGER_ROWS, dag=DAG, event="pod %")
_ENDS = _FAILURES.format(days=DAYS, rows=TASK_FAILURES, dag=DAG, event="task instance failed")
_OTHERS = f"""
INSERT INTO log (dttm, dag_id, task_id, run_id, map_index, try_number, event, extra)
SELECT now() - number * interval '{DAYS} days' / {AUDIT_ROWS}, '{DAG}', 'part', '{RUN_ID}',
       1000 + number / 10, 1,
       CASE number % 3 WHEN 0 THEN 'running' WHEN 1 THEN 'success' ELSE 'trigger_dag_run' END,
       '{{"host_name": "pod"}}'
FROM generate_series({AUDIT_ROWS} - {LEDGER_ROWS} - {TASK_FAILURES} - 1, 0, -1) number
"""  # noqa: S608 - of constants

_API = "kubernetes-resilience/api/v1"
_LAUNCHES = f"{_API}/dags/{STORY}/dagRuns/{RUN_ID}/taskInstances/load/-1/launches"

QUESTIONS: tuple[tuple[str, str, int, dict[str, str]], ...] = (
    ("summary of a day", f"{_API}/failures/summary", 1, {}),
    ("summary of a week, cut", f"{_API}/failures/summary", 7, {}),
    ("summary of a quarter, cut", f"{_API}/failures/summary", DAYS, {}),
    ("rows of a week, of one node", f"{_API}/failures", 7, {"node": "spot-a-7f2c", "limit": "25"}),
    ("tasks of a week that lost no pod", f"{_API}/task-failures", 7, {"category": "APPLICATION"}),
    ("launches of a task instance", _LAUNCHES, 1, {}),
)
"""What is asked, where, of how many days, and with which parameters."""


def main() -> None:
    """Write the rows, ask, and print how long each answer took."""
    with open_api_server() as server:
        for statement in (_INSTANCES, _LEDGER, _ENDS, _OTHERS, "ANALYZE"):
            execute(server.database_url, statement)
        table = Table("milliseconds", "median", "95%", title=f"{AUDIT_ROWS:,} audit rows")
        for title, path, days, parameters in QUESTIONS:
            times = _ask(server, path, days, parameters)
            table.add_row(title, f"{median(times):.0f}", f"{quantiles(times, n=20)[-1]:.0f}")
        make_console().print(table)


def _ask(server: AirflowDeployment, path: str, days: int, parameters: dict[str, str]) -> list[float]:
    """Return how many milliseconds each answer took, without the first one."""
    until = datetime.now(UTC)
    since = {"since": (until - timedelta(days=days)).isoformat(), "until": until.isoformat()}
    times = []
    for _ in range(REQUESTS + 1):
        # Of the test bed: it is logged in, and keeps its connection.
        answer = server.client.http.get(f"{server.url}/{path}", params=since | parameters)
        times.append(answer.raise_for_status().elapsed.total_seconds() * 1000)
    return times[1:]


if __name__ == "__main__":
    main()
