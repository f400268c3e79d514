# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Refuses versions of Airflow that came later. The metadata does so too, but pip can ignore metadata."""

from __future__ import annotations

from typing import Final

from airflow.version import version as airflow_version
from packaging.version import Version

UNSUPPORTED: Final = Version("3.4")
"""The first release that is refused. Betas come before the release; ``./breeze testing compat`` runs them."""


def refuse_unsupported() -> None:
    """
    Refuse an Airflow that is newer than the supported ones.

    :raises RuntimeError: if Airflow is newer
    """
    if Version(airflow_version) >= UNSUPPORTED:
        raise RuntimeError(
            f"Airflow {airflow_version} is not supported by this version of airflow-resilience, which is for"
            f" Airflow before {UNSUPPORTED}: install a newer one, or configure another executor"
        )
