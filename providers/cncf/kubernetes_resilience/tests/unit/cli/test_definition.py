# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.providers.cncf.kubernetes.cli.definition import get_kubernetes_cli_commands
from airflow.providers_manager import ProvidersManager

from airflow.providers.cncf.kubernetes_resilience.cli import commands
from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

_WHAT_THE_COMMANDS_BRING_ALONG = """
import sys
import airflow.cli.cli_config
before = set(sys.modules)
import airflow.providers.cncf.kubernetes_resilience.cli.definition as definition
definition.get_cli_commands()
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


def test_commands_are_described_without_importing_anything_but_airflows_own_description():
    program = [sys.executable, "-c", _WHAT_THE_COMMANDS_BRING_ALONG]
    imported = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    package = "airflow.providers.cncf.kubernetes_resilience"
    ours = {f"{package}.cli.definition", f"{package}.cli.arguments"}
    assert {f"{package}.cli", *ours} <= set(imported)
    assert [name for name in imported if not any(one.startswith(name) for one in ours)] == []


def test_airflow_finds_the_commands_through_the_provider():
    assert get_cli_commands in ProvidersManager().cli_command_functions


def test_executor_gives_the_official_commands_and_ours_to_airflow_3_1():
    official = [command.name for command in get_kubernetes_cli_commands()]
    names = [command.name for command in KubernetesExecutor.get_cli_commands()]
    assert names == [*official, "kubernetes-resilience"]


@pytest.mark.parametrize(
    "words",
    [
        ["policy", "lint", "policies.yaml"],
        ["policy", "show"],
        ["explain", "pod"],
        ["history", "dag", "run", "task"],
        ["generate-dag-yaml", "dag", "--logical-date", "2026-01-01"],
        ["build-provider-wheel", "--from", "official.whl", "--output", "wheels"],
    ],
)
def test_every_command_leads_to_its_function(words, monkeypatch):
    args = get_parser().parse_args(["kubernetes-resilience", *words])
    name = (words[1] if words[0] == "policy" else words[0]).replace("-", "_")
    called = []
    monkeypatch.setattr(f"{commands.__name__}.{name}", called.append)
    args.func(args)
    assert called == [args]


def test_exit_codes_are_documented(run):
    code, out, _ = run("explain", "--help")
    assert code == 0
    assert all(f"  {number}  " in out for number in range(4))
