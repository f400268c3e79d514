# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Runs Airflow's worker as in an image that has none of our distributions: their plugins are not found.

To be put before the worker's command line, ``python -m <module> ...``.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from typing import Any

OURS = ("airflow-resilience", "airflow-provider-cncf-kubernetes-resilience")

#: Where Airflow looks for plugins: with Python before 3.12, in the backport.
METADATA = "importlib.metadata" if sys.version_info >= (3, 12) else "importlib_metadata"


def hide_ours() -> None:
    """Have Airflow not find our distributions, in this process and in those that it forks."""
    metadata = importlib.import_module(METADATA)
    distributions = metadata.distributions

    def those_of_others(**options: Any) -> Iterator[Distribution]:
        return (item for item in distributions(**options) if item.metadata["Name"] not in OURS)

    setattr(metadata, "distributions", those_of_others)  # noqa: B010 - typed as final


if __name__ == "__main__":
    hide_ours()
    _, module, *arguments = sys.argv[1:][sys.argv[1:].index("-m") :]
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
