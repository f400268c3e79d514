# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which Airflow the testbed runs, and with which provider: what is installed beside it."""

from __future__ import annotations

from importlib.metadata import version


def airflow_version() -> tuple[int, int]:
    """Return the version as far as behaviour depends on it, without importing Airflow: that takes seconds."""
    major, minor, *_ = version("apache-airflow-core").split(".")
    return int(major), int(minor)


def is_in_place() -> bool:
    """Whether the official provider is one in which our executor has taken the official one's place."""
    return "+resilience." in version("apache-airflow-providers-cncf-kubernetes")
