# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Command: how long ``explain`` takes for the manifests of failed pods, with Airflow and without.

The first call in a new ``AIRFLOW_HOME`` also writes an airflow.cfg. The second one is measured.
"""

from __future__ import annotations

import resource
import sys
import time

from benchmarks.harness import OURS, Lab
from breeze.paths import ROOT
from testbed.waiting import run_well

WITH_AIRFLOW = "with Airflow"
SIZES = {WITH_AIRFLOW: 10, OURS: 10}
_POD = ROOT / "docs" / "policy-examples" / "drain.yaml"
_LAUNCHER = "import sys, airflow_kubernetes_resilience_launcher as launcher; sys.exit(launcher.main())"
_COMMANDS = {WITH_AIRFLOW: ("-m", "airflow", "kubernetes-resilience"), OURS: ("-c", _LAUNCHER)}


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure a call of the command, from its start to its end."""
    with lab.round(OURS, size) as round_:
        manifests = round_.home / "pods.yaml"
        manifests.write_text("---\n".join([_POD.read_text()] * size))
        command = [sys.executable, *_COMMANDS[candidate], "explain", "--file", str(manifests)]
        run_well(command, round_.environment)
        began, cpu_before = time.monotonic(), _cpu_seconds()
        run_well(command, round_.environment)
        return {"s for a call": time.monotonic() - began, "CPU s for a call": _cpu_seconds() - cpu_before}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
