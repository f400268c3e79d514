# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Runs Airflow's worker as in an image that has none of our distributions: their plugins are not found.

To be put before the worker's command line, ``python -m <module> ...``.
"""

from __future__ import annotations

import importlib.metadata
import runpy
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from typing import Any

OURS = ("airflow-resilience", "airflow-provider-cncf-kubernetes-resilience")

_distributions = importlib.metadata.distributions


def _those_of_others(**options: Any) -> Iterator[Distribution]:
    return (item for item in _distributions(**options) if item.metadata["Name"] not in OURS)


if __name__ == "__main__":
    setattr(importlib.metadata, "distributions", _those_of_others)  # noqa: B010 - typed as final
    _, module, *arguments = sys.argv[1:][sys.argv[1:].index("-m") :]
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
