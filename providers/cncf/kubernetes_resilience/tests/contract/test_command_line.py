# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Airflow finds our commands, however its version looks for them, and can run them.

Each call starts a whole ``airflow``, which takes seconds: four are for what is found, and two for what runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from airflow.cli.cli_config import ActionCommand, GroupCommand
from airflow.providers.cncf.kubernetes.cli.definition import get_kubernetes_cli_commands
from airflow.version import version as airflow_version

from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

POLICIES = """
policies:
  - name: standard
    rules:
      - {onCategories: [INFRASTRUCTURE], action: Retry}
"""


PATH = f"{KubernetesExecutor.__module__}.{KubernetesExecutor.__qualname__}"


def airflow(
    *words: str, executor: str = f"KubernetesExecutor:{PATH}", stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run the command line of a deployment with these executors."""
    # Airflow 3.1 asks the executors that are configured for their commands, later ones the providers.
    env = os.environ | {"AIRFLOW__CORE__EXECUTOR": executor, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "airflow", *words],
        env=env,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


starts_airflow = pytest.mark.starts_airflow


@starts_airflow
@pytest.mark.parametrize(
    ("group", "commands"),
    [
        ("kubernetes", ("cleanup-pods", "generate-dag-yaml")),
        (
            "kubernetes-resilience",
            ("explain", "generate-dag-yaml", "history", "policy", "report"),
        ),
    ],
)
def test_help_lists_the_official_commands_and_ours_without_a_warning(
    group: str, commands: tuple[str, ...]
) -> None:
    told = airflow(group, "--help")
    assert told.returncode == 0, told.stderr
    assert [command for command in commands if command not in told.stdout] == []
    assert "missing 'cli' section" not in told.stdout + told.stderr
    assert "Failed to load CLI commands" not in told.stdout + told.stderr


@starts_airflow
@pytest.mark.parametrize(
    "executor",
    [
        f"KubernetesExecutor:{PATH},official:{upstream.EXECUTOR_MODULE}.KubernetesExecutor",
        pytest.param(
            "KubernetesExecutor",
            marks=pytest.mark.skipif(
                airflow_version.startswith("3.1.")
                and upstream.EXECUTOR_MODULE == upstream.OFFICIAL_EXECUTOR_MODULE,
                reason="this is the official one, which Airflow 3.1 has no other commands of",
            ),
        ),
    ],
    ids=["beside", "alone"],
)
def test_each_group_of_commands_is_there_once(executor: str) -> None:
    told = airflow("--help", executor=executor)
    assert told.returncode == 0, told.stderr
    groups = [words[0] for line in told.stdout.splitlines() if (words := line.split())]
    assert [groups.count(group) for group in ("kubernetes", "kubernetes-resilience")] == [1, 1]


def test_pods_of_a_dag_are_asked_for_in_the_official_words() -> None:
    assert words_of(get_cli_commands(), "generate-dag-yaml") == words_of(
        get_kubernetes_cli_commands(), "generate-dag-yaml"
    )


def words_of(groups: Iterable[GroupCommand], name: str) -> set[tuple[str, ...]]:
    """Return the options of a command that takes some."""
    commands = chain.from_iterable(group.subcommands for group in groups)
    (command,) = (one for one in commands if isinstance(one, ActionCommand) and one.name == name)
    return {argument.flags for argument in command.args}


@starts_airflow
def test_command_runs(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(POLICIES)
    told = airflow("kubernetes-resilience", "policy", "lint", str(file))
    assert told.returncode == 0, told.stderr
    # Nothing else, and no log line, stands among the results.
    assert told.stdout == f"{file}: valid; policies: built-in, standard; default: built-in\n"


@pytest.mark.airflow_alone
def test_pipe_that_nobody_reads_is_no_answer() -> None:
    read, write = os.pipe()
    os.close(read)
    told = airflow("kubernetes-resilience", "policy", "show", stdout=write)
    os.close(write)
    assert (told.returncode, "Traceback" in told.stderr) == (2, False)
