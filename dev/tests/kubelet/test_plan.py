# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from breeze.paths import ROOT
from cluster_lab.faults.launches import Launch, LaunchCounter, LaunchPhase
from cluster_lab.faults.plan import Fault, FaultPlan, FaultRule


def test_system_tests_play_every_way_to_lose_a_pod_before_its_process_starts() -> None:
    plan = FaultPlan.load(ROOT / "tests" / "dags" / "each_version" / "faults.yaml")
    played = {rule.fault for rule in plan.rules if rule.dag_id == "version_matrix"}
    at_work = {fault for fault in Fault if fault.value.endswith("-running")}
    # Each of these has a test of its own.
    assert played == {*Fault} - at_work - {Fault.REGISTRY_AWAY, Fault.SIDECAR_RUNS_ON}


def worker_pod(
    task_id: str = "load", try_number: int = 1, map_index: int | None = None, node: str = "node-1"
) -> dict[str, Any]:
    annotations = {"dag_id": "etl", "task_id": task_id, "run_id": "r1", "try_number": str(try_number)}
    if map_index is not None:
        annotations["map_index"] = str(map_index)
    return {"metadata": {"annotations": annotations}, "spec": {"nodeName": node}}


def load(tmp_path: Path, text: str) -> FaultPlan:
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return FaultPlan.load(path)


def first_launch(**pod: Any) -> Launch:
    return LaunchCounter().register(worker_pod(**pod))


def test_a_plan_is_loaded_from_yaml(tmp_path: Path) -> None:
    plan = load(
        tmp_path,
        """
        rules:
          - {task_id: "extract_*", fault: evicted}
          - {dag_id: etl, task_id: wait, fault: start-error, phase: resume, launch: 2, delay: 1.5}
        """,
    )
    assert plan.rules == (
        FaultRule(task_id="extract_*", fault=Fault.EVICTED),
        FaultRule(
            dag_id="etl",
            task_id="wait",
            fault=Fault.START_ERROR,
            phase=LaunchPhase.RESUME,
            launch=2,
            delay=1.5,
        ),
    )


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("{fault: meteor}", "meteor"),
        ("{fault: evicted, tasks: x}", "tasks"),
        ("{fault: evicted, launch: 0}", "launch"),
        ("{fault: evicted, delay: -1}", "delay"),
        ("{task_id: x}", "fault"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(tmp_path: Path, rule: str, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        load(tmp_path, f"rules: [{rule}]")


@pytest.mark.parametrize(
    ("rule", "pod", "matches"),
    [
        ({"task_id": "lo*"}, {}, True),
        ({"task_id": "LO*"}, {}, False),
        ({"dag_id": "other"}, {}, False),
        ({"node": "node-*"}, {}, True),
        ({"node": "node-2"}, {}, False),
        ({"map_index": 3}, {"map_index": 3}, True),
        ({"map_index": 3}, {"map_index": 4}, False),
        ({"map_index": 3}, {}, False),
        ({"map_index": -1}, {}, True),
        ({"try_number": 2}, {"try_number": 2}, True),
        ({"try_number": 2}, {"try_number": 1}, False),
        ({"launch": 2}, {}, False),
        ({"launch": None}, {}, True),
        ({"phase": LaunchPhase.RESUME}, {}, False),
    ],
)
def test_a_rule_matches_by_what_it_names(rule: dict[str, Any], pod: dict[str, Any], matches: bool) -> None:
    assert FaultRule(fault=Fault.VANISH, **rule).matches(first_launch(**pod)) is matches


def test_the_first_rule_that_matches_decides() -> None:
    specific = FaultRule(task_id="load", fault=Fault.DRAIN)
    plan = FaultPlan((specific, FaultRule(fault=Fault.VANISH)))
    assert plan.rule_for(first_launch()) is specific
    assert FaultPlan().rule_for(first_launch()) is None


def test_launches_are_counted_for_each_try() -> None:
    counter = LaunchCounter()
    pods = [worker_pod(), worker_pod(), worker_pod("other"), worker_pod(try_number=2), worker_pod()]
    assert [counter.register(pod).number for pod in pods] == [1, 2, 1, 1, 3]


def test_after_a_pod_that_ended_well_the_task_is_resumed_and_counted_anew() -> None:
    counter = LaunchCounter()
    counter.register(worker_pod())
    counter.ended_well(counter.register(worker_pod()))
    resumed = [counter.register(worker_pod()) for _ in range(2)]
    assert [(launch.phase, launch.number) for launch in resumed] == [("resume", 1), ("resume", 2)]


def test_pods_that_are_not_workers_of_airflow_are_launches_too() -> None:
    launch = LaunchCounter().register({"metadata": {}, "spec": {}})
    assert launch.task_try == ("", "", "", -1, 0)
    assert FaultRule(fault=Fault.VANISH).matches(launch)
