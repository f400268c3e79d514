# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the demo, a system test of lost pods, takes for a failure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from unittest.mock import create_autospec

import pytest
import yaml
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

from cluster_lab.faults.plan import Fault
from demo import lost_pods
from demo.display import Row
from demo.lost_pods import CONTROL, IN_TWO_PARTS, UNKNOWN, row_of
from demo.storm import AWAY_FOR
from testbed.code_journal import JsonLines, code_name
from testbed.records import Outcome, Records, Run

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


def test_a_task_that_ends_while_it_is_read_has_not_ended_without_its_code(tmp_path: Path) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE log (id, dag_id, run_id, task_id, map_index, event, extra)"))
        connection.execute(
            text(
                "CREATE TABLE task_instance AS SELECT 'lost_pods' AS dag_id, 'manual' AS run_id, 'evicted' AS"
                " task_id, -1 AS map_index, 'running' AS state, 1 AS try_number, 0 AS max_tries"
            )
        )
    steps = ["begun"]

    def read() -> list[tuple[str, str]]:
        """Read the journal of the code, which ends after that, and its task too."""
        found = [(code_name("lost_pods", "manual", "evicted", -1), step) for step in steps]
        steps.append("ended")
        with engine.begin() as connection:
            connection.execute(text("UPDATE task_instance SET state = 'success'"))
        return found

    journal = create_autospec(JsonLines, instance=True)
    journal.read.side_effect = read
    run = Run(Records(engine, [], journal, tmp_path), "lost_pods", "manual")
    first, second = run.outcome("evicted"), run.outcome("evicted")
    assert (first.works, second.has_ended, second.ended) == (True, True, 1)


def test_readme_counts_the_faults_that_the_demo_plays():
    rules = yaml.safe_load(PLAN.read_text())["rules"]
    infrastructure = sum(rule["fault"] != Fault.WORKER_EXIT for rule in rules)
    readme = README.read_text()
    counted = {int(number) for pair in re.findall(r"(\d+) of (\d+)", readme) for number in pair}
    assert counted == {infrastructure}
    tasks = run_path(str(PLAN.parent / "dags" / "storm.py"))["TASKS"]
    assert f"for {AWAY_FOR.seconds} s while {tasks} tasks of the demo start" in readme
    assert f"| all {tasks} fail | all {tasks} succeed |" in readme
