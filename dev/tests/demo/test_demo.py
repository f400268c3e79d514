# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the demo, a system test of lost pods, takes for a failure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from runpy import run_path

import pytest
import yaml

from cluster_lab.faults.plan import Fault
from demo import lost_pods
from demo.display import Row
from demo.lost_pods import CONTROL, IN_TWO_PARTS, UNKNOWN, row_of
from demo.storm import AWAY_FOR
from testbed.records import Outcome

README = Path(__file__).parents[3] / "README.md"
PLAN = Path(lost_pods.__file__).with_name("faults.yaml")

OUTCOME = Outcome(state="success", pods=2, launch_failures=1)
EVICTED = replace(row_of("evicted", Fault.EVICTED, OUTCOME, []), fits=True)
OWN = replace(
    row_of("worker_exit", Fault.WORKER_EXIT, replace(OUTCOME, try_number=2, max_tries=1), []), fits=True
)
UNTOUCHED = row_of(CONTROL, None, replace(OUTCOME, pods=1), [])
DEFERRED = replace(row_of(IN_TWO_PARTS, Fault.START_ERROR, replace(OUTCOME, begun=2, ended=2), []), fits=True)
DRAINED = Row(task_id="report_1", outcome=replace(OUTCOME, begun=3), begun=3, fits=True)


@pytest.mark.parametrize(
    ("good", "change"),
    [
        (EVICTED, {"state": "failed"}),
        (EVICTED, {"state": "queued"}),
        (EVICTED, {"try_number": 2}),
        (EVICTED, {"begun": 2}),
        (EVICTED, {"begun": 0, "ended": 0}),
        (DEFERRED, {"begun": 3}),
        (OWN, {"try_number": 1}),
        (DRAINED, {"begun": 4}),
        (DRAINED, {"ended": 2}),
    ],
)
def test_each_deviation_is_noticed(good: Row, change: dict[str, object]) -> None:
    assert good.as_expected
    assert not replace(good, outcome=replace(good.outcome, **change)).as_expected


def test_a_task_has_to_lose_what_it_should() -> None:
    assert UNTOUCHED.as_expected
    assert not row_of(CONTROL, None, OUTCOME, []).as_expected
    assert not row_of("evicted", Fault.EVICTED, OUTCOME, []).as_expected
    assert not row_of("evicted", Fault.EVICTED, UNKNOWN, []).as_expected


def test_readme_counts_the_faults_that_the_demo_plays():
    rules = yaml.safe_load(PLAN.read_text())["rules"]
    infrastructure = sum(rule["fault"] != Fault.WORKER_EXIT for rule in rules)
    readme = README.read_text()
    counted = {int(number) for pair in re.findall(r"(\d+) of (\d+)", readme) for number in pair}
    assert counted == {infrastructure}
    tasks = run_path(str(PLAN.parent / "dags" / "storm.py"))["TASKS"]
    assert f"for {AWAY_FOR.seconds} s while {tasks} tasks of the demo start" in readme
    assert f"| all {tasks} fail | all {tasks} succeed |" in readme
