# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The plans of the system tests; each of those tests shows that its rules match what they are to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from breeze.paths import ROOT
from cluster_lab.faults.plan import Fault, FaultPlan
from cluster_lab.faults.scenarios import AT_WORK


def test_system_tests_play_every_way_to_lose_a_pod_before_its_process_starts() -> None:
    plan = FaultPlan.load(ROOT / "tests" / "dags" / "each_version" / "faults.yaml")
    played = {rule.fault for rule in plan.rules if rule.dag_id == "version_matrix"}
    # Each of these has a test of its own.
    assert played == {*Fault} - {*AT_WORK} - {Fault.REGISTRY_AWAY, Fault.SIDECAR_RUNS_ON}


def test_what_is_no_rule_is_refused_by_name(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("rules: [{fault: meteor, tasks: x}]")
    with pytest.raises(ValidationError, match=r"(?s)meteor.*tasks"):
        FaultPlan.load(plan)
