# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The demo, in three acts: a real Airflow loses the first pod of every task, each in another way; then nodes are
drained under tasks that run; then the image registry is away while tasks start.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from demo.display import View, save_picture
from demo.drained import DAG_ID as DRAINED_DAG_ID
from demo.drained import drain_nodes, drained_text
from demo.lost_pods import DAG_ID, PLAN, lose_pods, summary_text, task_table
from demo.storm import storm_text, weather
from pictures.places import AIRFLOW_FAILURES, airflow_launches
from testbed.post_mortem import post_mortem
from testbed.terminal import make_console, run_in_terminal
from testbed.testbed import Testbed, TestbedSettings, open_testbed

FOLDER = Path(__file__).parent

# The demo waits for turns of the scheduler's loop, which its heartbeats count.
ENVIRONMENT = {"AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1"}

FAILED = Path(__file__).parents[3] / ".build" / "failed" / "demo"
"""Where all logs are kept if a task did not do what it should."""


def run(upstream: bool, keep: bool, binaries: Path | None, picture: Path | None = None) -> int:
    """
    Run the demo and return its exit code.

    :param upstream: Use the official executor. It is shown as it is, so the exit code is 0 if the demo
        itself ran to its end, whatever became of the tasks.
    :param keep: Leave everything running at the end, until Ctrl-C.
    :param binaries: The programs of a real control plane; None: the embedded API server takes its place.
    :param picture: Where to write what the terminal shows in the end, as SVG; None: nowhere.
    :return: 0 if every task did what it should.
    """
    return run_in_terminal(lambda: _run(upstream, keep, binaries, picture))


def _run(upstream: bool, keep: bool, binaries: Path | None, picture: Path | None) -> int:
    console = make_console()
    name = "the official KubernetesExecutor" if upstream else "the resilient KubernetesExecutor"
    with _testbed(console, upstream, binaries) as testbed:
        url = f"{testbed.deployment.url}/dags/{DAG_ID}"
        console.print(f"Airflow's UI: {url}")
        heading = f"Every task loses its first pod; {name}"
        with View(console) as view:
            rows = lose_pods(testbed, view, heading, upstream=upstream)
        console.print(summary_text(rows))
        unexpected = [row.task_id for row in rows if not row.as_expected]
        if unexpected and not upstream:
            _show_logs(console, testbed.home)
            return 1
        console.print("\nSecond act: nodes are drained under tasks that run")
        run = testbed.trigger(DRAINED_DAG_ID)
        drained = drain_nodes(testbed, run, console)
        second_act = drained_text(drained, f"The node of each task is drained while it runs; {name}")
        console.print(second_act)
        console.print("\nThird act: the image registry is away")
        storm = weather(testbed, console)
        third_act = storm_text(storm, f"The registry is away while tasks start; {name}")
        console.print(third_act)
        if picture:
            shown = task_table(rows, heading), summary_text(rows), "", second_act, "", third_act
            save_picture(picture, *shown)
        unexpected += [row.task_id for row in (*drained, *storm.rows) if not row.as_expected]
        if unexpected and not upstream:
            _show_logs(console, testbed.home)
            console.print(f"\nNot what it should be: {', '.join(unexpected)}")
        if keep:
            hit = max(drained, key=lambda row: row.begun).task_id
            _wait_for_interrupt(
                console, testbed.deployment.url, airflow_launches(run.dag_id, run.run_id, hit)
            )
        else:
            hint = "" if upstream else " For comparison: --upstream."
            console.print(f"The UI was at {url}; --keep leaves it running.{hint} Stopping everything.")
    return 0 if upstream or not unexpected else 1


@contextmanager
def _testbed(console: Console, upstream: bool, binaries: Path | None) -> Iterator[Testbed]:
    with tempfile.TemporaryDirectory(prefix="airflow-demo-", ignore_cleanup_errors=True) as folder:
        settings = TestbedSettings(
            home=Path(folder),
            dags=FOLDER / "dags",
            env=ENVIRONMENT | ({"AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor"} if upstream else {}),
            control_plane=binaries,
            shared_logs=True,
        )
        console.print(f"PostgreSQL, {settings.nodes} simulated nodes and Airflow start in {folder}")
        try:
            with open_testbed(settings) as testbed:
                testbed.lab.use(PLAN)
                console.print("Airflow runs: API server, DAG processor, triggerer, scheduler")
                try:
                    yield testbed
                finally:
                    # An impatient second Ctrl-C would leave processes behind; each has its time limit.
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
        except Exception:
            _show_logs(console, settings.home)
            raise


def _show_logs(console: Console, home: Path) -> None:
    for name, lines in post_mortem(home, FAILED):
        console.print(f"\n{name}:", lines, sep="\n", markup=False, soft_wrap=True)


def _wait_for_interrupt(console: Console, url: str, launches: str) -> None:
    console.print(
        f"Everything is still running.\n"
        f"Airflow's UI: {url}/dags/{DAG_ID}\n"
        f"Infrastructure failures (in the menu: Browse): {url}/{AIRFLOW_FAILURES}\n"
        f"Launches of a task whose node was drained (its tab): {url}/{launches}\n"
        "Ctrl-C stops it.",
        soft_wrap=True,
    )
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("Stopping everything.")
