# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Where it was measured, and with which versions."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

_DISTRIBUTIONS = (
    "apache-airflow",
    "apache-airflow-providers-cncf-kubernetes",
    "airflow-provider-cncf-kubernetes-resilience",
    "aiohttp",
    "kubernetes",
    "kubernetes_asyncio",
    "msgspec",
    "SQLAlchemy",
)


def describe_machine(binaries: Path | None) -> dict[str, str]:
    """
    Describe this machine, and what is measured on it.

    :param binaries: the programs of the control plane; None: the embedded API server
    """
    return {
        "processor": _processor(),
        "processors": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": platform.platform(),
        "python": platform.python_version(),
        "control plane": _kubernetes(binaries),
        **{name: version(name) for name in _DISTRIBUTIONS},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _kubernetes(binaries: Path | None) -> str:
    if binaries is None:
        return "the embedded API server"
    done = subprocess.run(
        [binaries / "kube-apiserver", "--version"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
