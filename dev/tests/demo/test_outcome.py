# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The result on each task and the summary: every condition that a row has to meet, and can miss."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import demo
from cluster_lab.faults.plan import Fault, FaultPlan, FaultRule
from cluster_lab.journal import JournalEntry, JournalEvent
from demo.outcome import CONTROL, Evidence, TaskOutcome, outcomes, summarise
from testbed.code_journal import CodeRun, CodeRuns
from testbed.task_instances import TaskInstance

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLAN = FaultPlan(
    rules=(
        FaultRule(task_id="evicted", fault=Fault.EVICTED),
        FaultRule(task_id="worker_exit", fault=Fault.WORKER_EXIT, try_number=1),
    )
)


def entry(task_id: str, second: float, event: JournalEvent, pod: int = 1) -> JournalEntry:
    return JournalEntry(
        time=START + timedelta(seconds=second),
        event=event,
        namespace="default",
        pod=f"{task_id}-{pod}",
        uid=f"{task_id}-uid-{pod}",
        node=f"node-{pod}",
        dag_id="lost_pods",
        task_id=task_id,
        run_id="run",
        map_index=-1,
        try_number=1,
        phase="initial",
        launch=pod,
    )


def task(task_id: str, state: str, try_number: int, second: float | None = None) -> TaskInstance:
    ended = None if second is None else START + timedelta(seconds=second)
    return TaskInstance("lost_pods", "run", task_id, -1, state, try_number, end_date=ended)


def relaunched(task_id: str) -> list[JournalEntry]:
    return [
        entry(task_id, 1, JournalEvent.BOUND),
        entry(task_id, 2, JournalEvent.FAULT_INJECTED),
        entry(task_id, 4.5, JournalEvent.BOUND, pod=2),
    ]


def ran(**times: tuple[int, int]) -> CodeRuns:
    names = {
        CodeRun(task(task_id, "success", 1).code_name, "execute"): both for task_id, both in times.items()
    }
    return CodeRuns(
        Counter({name: begun for name, (begun, _) in names.items()}),
        Counter({name: ended for name, (_, ended) in names.items()}),
    )


def good_evidence() -> Evidence:
    tasks = {
        CONTROL: task(CONTROL, "success", 1, 50),
        "evicted": task("evicted", "success", 1, 60),
        "worker_exit": task("worker_exit", "success", 2, 70),
    }
    journal = [
        entry(CONTROL, 1, JournalEvent.BOUND),
        *relaunched("evicted"),
        *relaunched("worker_exit"),
    ]
    code = ran(control=(1, 1), evicted=(1, 1), worker_exit=(1, 1))
    return Evidence(tasks, journal, code, START, START + timedelta(seconds=90))


def row_of(task_id: str, evidence: Evidence) -> TaskOutcome:
    return next(row for row in outcomes(PLAN, evidence) if row.task_id == task_id)


def with_state(task_id: str, state: str, try_number: int) -> Evidence:
    good = good_evidence()
    tasks = {**good.tasks, task_id: task(task_id, state, try_number)}
    return Evidence(tasks, good.journal, good.code, good.started, good.now)


def with_code(**times: tuple[int, int]) -> Evidence:
    good = good_evidence()
    whole = {"control": (1, 1), "evicted": (1, 1), "worker_exit": (1, 1)} | times
    return Evidence(good.tasks, good.journal, ran(**whole), good.started, good.now)


def with_journal(*journal: JournalEntry) -> Evidence:
    good = good_evidence()
    return Evidence(good.tasks, journal, good.code, good.started, good.now)


def test_everything_as_it_should_be() -> None:
    rows = outcomes(PLAN, good_evidence())
    assert [row.task_id for row in rows] == [CONTROL, "evicted", "worker_exit"]
    summary = summarise(rows)
    assert summary.passed
    assert (summary.recovered, summary.lost) == (1, 1)
    assert (summary.retries, summary.own_failures) == (1, 1)
    assert summary.relaunch_median == summary.relaunch_max == 2.5
    assert summary.ran_once == summary.tasks == 3


@pytest.mark.parametrize(
    ("task_id", "evidence"),
    [
        pytest.param("evicted", with_state("evicted", "failed", 1), id="failed"),
        pytest.param("evicted", with_state("evicted", "queued", 1), id="stuck"),
        pytest.param("evicted", with_state("evicted", "success", 2), id="cost a retry"),
        pytest.param("evicted", with_code(evicted=(2, 1)), id="ran twice"),
        pytest.param("evicted", with_code(evicted=(1, 0)), id="did not come to its end"),
        pytest.param("evicted", with_code(evicted=(0, 0)), id="never ran"),
        pytest.param("evicted", with_journal(), id="nothing happened to it"),
        pytest.param("worker_exit", with_state("worker_exit", "success", 1), id="kept its retry"),
        pytest.param("worker_exit", with_state("worker_exit", "failed", 2), id="retry failed"),
        pytest.param(CONTROL, with_journal(*relaunched(CONTROL)), id="control had two pods"),
        pytest.param(CONTROL, with_state(CONTROL, "success", 2), id="control was retried"),
    ],
)
def test_each_deviation_is_noticed(task_id: str, evidence: Evidence) -> None:
    assert row_of(task_id, good_evidence()).as_expected
    assert not row_of(task_id, evidence).as_expected
    summary = summarise(outcomes(PLAN, evidence))
    assert task_id in summary.unexpected
    assert not summary.passed


def test_a_task_that_airflow_does_not_know_yet_has_a_row() -> None:
    nothing = Evidence({}, [], CodeRuns(Counter(), Counter()), START, START + timedelta(seconds=3))
    row = row_of("evicted", nothing)
    assert (row.state, row.launches, row.seconds, row.finished) == (None, 0, 3.0, False)
    assert summarise(outcomes(PLAN, nothing)).relaunch_median is None


def test_time_stops_when_the_task_ends() -> None:
    assert row_of("evicted", good_evidence()).seconds == 60
    assert row_of("evicted", with_state("evicted", "running", 1)).seconds == 90


def test_only_a_pod_that_comes_after_the_loss_is_its_successor() -> None:
    first, loss, _ = relaunched("evicted")
    assert row_of("evicted", with_journal(first, loss)).relaunch_seconds is None


def test_nodes_are_listed_in_the_order_of_the_launches() -> None:
    row = row_of("evicted", good_evidence())
    assert row.nodes == ("node-1", "node-2")
    assert row.launches == 2


def test_each_task_of_the_demo_has_one_rule_that_names_it() -> None:
    rules = FaultPlan.load(Path(demo.__file__).parent / "faults.yaml").rules
    names = [rule.task_id for rule in rules]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set("*?[") for name in names)
