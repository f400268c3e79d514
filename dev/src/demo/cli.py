# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The demo: a real Airflow loses the first pod of every task, each in another way."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from sqlalchemy import create_engine

from cluster_lab.faults.plan import FaultPlan
from cluster_lab.postgres import EmbeddedPostgres
from demo.airflow_configuration import RESILIENT_EXECUTOR, UPSTREAM_EXECUTOR, DeploymentSettings
from demo.airflow_deployment import AirflowDeployment, Component
from demo.code_journal import FOLDER_VARIABLE
from demo.display import View, summary_text
from demo.follow import DAG_ID, Records, follow_run
from demo.lab import Lab, LabSettings
from demo.outcome import Summary, summarise

FOLDER = Path(__file__).parent
PLAN = FOLDER / "faults.yaml"
CONSOLE_WIDTH = 120
"""Columns of an output that is no terminal."""

EXPLAINING_LINES = 3
"""How many lines of the scheduler's log are shown for a task that did not do what it should."""


WATCH_SECONDS = 20.0
"""
How often every watch is broken off under this executor.

The official one's ends by itself after 30 s without an event, and what it does then is what kills healthy
tasks. Ours would outlive the demo, so it is put to the same test by force.
"""


@dataclass(frozen=True)
class Stage:
    """Everything that the demo needs, up and running."""

    deployment: AirflowDeployment
    records: Records


def run(upstream: bool, keep: bool, kubeconfig: Path | None) -> int:
    """
    Run the demo and return its exit code.

    :param upstream: Use the official executor. It is shown as it is, so the exit code is 0 if the demo
        itself ran to its end, whatever became of the tasks.
    :param keep: Leave everything running at the end, until Ctrl-C.
    :param kubeconfig: Use the cluster of this file and not the embedded one.
    :return: 0 if every task did what it should.
    """
    # A plain SIGTERM would end this process and leave everything that it has started.
    signal.signal(signal.SIGTERM, _leave)
    try:
        return _run(upstream, keep, kubeconfig)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(upstream: bool, keep: bool, kubeconfig: Path | None) -> int:
    console = Console(width=None if sys.stdout.isatty() else CONSOLE_WIDTH, highlight=False)
    name = "the official KubernetesExecutor" if upstream else "the resilient KubernetesExecutor"
    executor = UPSTREAM_EXECUTOR if upstream else RESILIENT_EXECUTOR
    with _stage(console, executor, kubeconfig) as stage:
        url = f"{stage.deployment.url}/dags/{DAG_ID}"
        console.print(f"Airflow's UI: {url}")
        with View(console, f"Every task loses its first pod; {name}") as view:
            rows = follow_run(stage.deployment.client, stage.records, view)
        summary = summarise(rows)
        console.print(summary_text(summary))
        if not summary.passed and not upstream:
            _explain(console, stage.deployment, summary)
        if keep:
            _wait_for_interrupt(console, url)
        else:
            hint = "" if upstream else " For comparison: --upstream."
            console.print(f"The UI was at {url}; --keep leaves it running.{hint} Stopping everything.")
    return 0 if upstream or summary.passed else 1


@contextmanager
def _stage(console: Console, executor: str, kubeconfig: Path | None) -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory(prefix="airflow-demo-", ignore_cleanup_errors=True) as folder,
        EmbeddedPostgres() as postgres,
    ):
        home = Path(folder)
        console.print(f"PostgreSQL runs; everything else is in {home}")
        deployment = AirflowDeployment(
            DeploymentSettings(
                home=home,
                database_url=postgres.url,
                kubeconfig=kubeconfig or home / "kubeconfig",
                dags_folder=FOLDER / "dags",
                executor=executor,
                env={FOLDER_VARIABLE: folder},
            )
        )
        lab_settings = LabSettings(
            home=home,
            kubeconfig=kubeconfig or home / "kubeconfig",
            embedded=kubeconfig is None,
            cut_watches=WATCH_SECONDS if executor == RESILIENT_EXECUTOR else None,
            plan=PLAN,
            worker_env=deployment.worker_environment(),
        )
        with Lab(lab_settings):
            console.print(f"The cluster runs: {lab_settings.nodes} simulated nodes")
            with deployment:
                deployment.wait_for_dag(DAG_ID)
                console.print("Airflow runs: API server, DAG processor, triggerer, scheduler")
                engine = create_engine(postgres.url)
                try:
                    yield Stage(deployment, Records(engine, lab_settings.journal, home, FaultPlan.load(PLAN)))
                finally:
                    # An impatient second Ctrl-C would leave processes behind; each has its time limit.
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    engine.dispose()


def _explain(console: Console, deployment: AirflowDeployment, summary: Summary) -> None:
    for component, process in deployment.components.items():
        if not process.running:
            console.print(f"\n{component} is not running any more ({process.returncode}):\n{process.tail()}")
    log = deployment.components[Component.SCHEDULER].log_file.read_text(errors="replace").splitlines()
    for task_id in summary.unexpected:
        lines = [line for line in log if task_id in line and "[info" not in line][-EXPLAINING_LINES:]
        console.print(f"\nThe scheduler's last words about {task_id}:", *lines, sep="\n", markup=False)


def _wait_for_interrupt(console: Console, url: str) -> None:
    console.print(f"Everything is still running; Airflow's UI: {url}\nCtrl-C stops it.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("Stopping everything.")


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
