# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Airflow finds our commands, however its version looks for them, and can run them.

Each call starts a whole ``airflow``, which takes seconds: two are for what is found, and one for what runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

POLICIES = """
policies:
  - name: standard
    rules:
      - {onCategories: [INFRASTRUCTURE], action: Retry}
"""


def airflow(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of a deployment that has our executor."""
    # Airflow 3.1 asks the executor that is configured for its commands, later ones the providers.
    path = f"{KubernetesExecutor.__module__}.{KubernetesExecutor.__qualname__}"
    env = os.environ | {"AIRFLOW__CORE__EXECUTOR": f"KubernetesExecutor:{path}", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "airflow", *words], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("group", "commands"),
    [
        ("kubernetes", ("cleanup-pods", "generate-dag-yaml")),
        ("kubernetes-resilience", ("explain", "history", "launches", "policy", "report")),
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


def test_command_runs(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(POLICIES)
    told = airflow("kubernetes-resilience", "policy", "lint", str(file))
    assert told.returncode == 0, told.stderr
    # Nothing else, and no log line, stands among the results.
    assert told.stdout == f"{file}: valid; policies: built-in, standard; default: built-in\n"
