# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The policies that the configuration names."""

from __future__ import annotations

from pathlib import Path

from airflow.configuration import conf

from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import make_built_in
from airflow.providers.cncf.kubernetes_resilience.executors.settings import read_settings
from airflow_resilience.retry_policy.document import read_policies
from airflow_resilience.retry_policy.rule import PolicySet


def read_configured_policies(path: str | None = None) -> PolicySet:
    """
    Read the policies that an executor with this configuration would start with.

    :param path: another policy file than the configured one
    :raises AirflowConfigException: if a configured value cannot be used
    :raises PolicyFileError: if the file cannot be used
    """
    settings = read_settings(conf)
    built_in = make_built_in(settings)
    file = Path(path) if path else settings.retry_policy_file
    return read_policies(file, built_in) if file else built_in
