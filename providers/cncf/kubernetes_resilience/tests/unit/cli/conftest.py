# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.executors.executor_loader import ExecutorLoader
from airflow.executors.executor_utils import ExecutorName

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

OURS = f"{KubernetesExecutor.__module__}.{KubernetesExecutor.__name__}"
LOCAL = "airflow.executors.local_executor.LocalExecutor"


class Outcome(NamedTuple):
    """What a command has printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys):
    """Give a function that runs a command of ours as ``airflow`` does, in this process."""

    def command(*words: str) -> Outcome:
        capsys.readouterr()  # what Airflow has logged while the test was set up
        try:
            args = get_parser().parse_args(["kubernetes-resilience", *map(str, words)])
            args.func(args)
            code = 0
        except SystemExit as end:
            code = int(end.code)
        return Outcome(code, *capsys.readouterr())

    return command


POLICIES = """
defaultPolicy: standard
policies:
  - name: standard
    retryLimit: 3
    backoff: {initialDelay: 10s, multiplier: 2, maxDelay: 5m, jitter: 0.2}
    avoidNode: prefer
    defaultAction: Count
    rules:
      - name: registry
        onReasons: [IMAGE_UNAVAILABLE]
        action: Retry
      - name: disk
        onTerminationMessage: {containerName: base, pattern: "no [space]+ left"}
        action: Fail
  - name: gpu
    rules:
      - name: anything
        onCategories: [INFRASTRUCTURE]
        action: Retry
        retryLimit: -1
        backoff: {initialDelay: 1m, maxDelay: 1m, jitter: 0}
selection:
  - {policy: gpu, queues: [gpu], dagTags: [training]}
  - {policy: gpu, dagIds: ["gpu_*"]}
"""


@pytest.fixture
def policy_file(tmp_path):
    path = tmp_path / "policies.yaml"
    path.write_text(POLICIES)
    return path


@pytest.fixture
def configured(policy_file, monkeypatch):
    """The policy file, configured."""
    monkeypatch.setenv("AIRFLOW__KUBERNETES_RESILIENCE__RETRY_POLICY_FILE", str(policy_file))
    return policy_file


@pytest.fixture
def configure(monkeypatch):
    """Give a function that configures executors, by alias, class, and team if there is one."""

    def make(*names):
        found = [ExecutorName(path, alias, *team) for alias, path, *team in names]
        monkeypatch.setattr(ExecutorLoader, "get_executor_names", lambda: found)

    make((None, OURS))
    return make
