# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which Airflow the testbed runs, and with which provider: what is installed beside it."""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple


class AirflowVersion(NamedTuple):
    """A version of Airflow, as far as its behaviour may depend on it."""

    major: int
    minor: int


def airflow_version() -> AirflowVersion:
    """Return the version, without importing Airflow, which takes seconds."""
    major, minor, *_ = version("apache-airflow-core").split(".")
    return AirflowVersion(int(major), int(minor))


def is_in_place() -> bool:
    """Whether the official provider is one in which our executor has taken the official one's place."""
    return "+resilience." in version("apache-airflow-providers-cncf-kubernetes")
