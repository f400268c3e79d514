# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Measurements with a few pods, on the embedded API server.

They prepare the insides of the executors. A change of those must not go unnoticed until the next run of the
benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from benchmarks.candidates import Candidate
from benchmarks.catalogue import Measure
from benchmarks.lab import Lab, open_lab
from benchmarks.measure.events import measure_events, measure_loop, measure_lost

PODS = 20


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with open_lab(None) as opened:
        yield opened


@pytest.mark.parametrize(
    ("measure", "candidate"),
    [
        (measure_events, Candidate.OURS),
        pytest.param(measure_loop, Candidate.OURS, marks=pytest.mark.long),
        pytest.param(measure_loop, Candidate.UPSTREAM, marks=pytest.mark.long),
    ],
)
def test_an_executor_has_results_for_all_pods(lab: Lab, measure: Measure, candidate: Candidate) -> None:
    values = measure(lab, candidate, PODS)
    assert values["kilobytes_per_task"] > 0


@pytest.mark.parametrize(
    ("candidate", "settled"),
    [
        pytest.param(Candidate.UPSTREAM, "reported", marks=pytest.mark.long),
        pytest.param(Candidate.OURS, "reported", marks=pytest.mark.long),
        (Candidate.WITH_BUDGET, "replaced"),
    ],
)
def test_running_tasks_whose_pods_are_lost_are_reported_or_have_another_pod(
    lab: Lab, candidate: Candidate, settled: str
) -> None:
    values = measure_lost(lab, candidate, PODS)
    assert 0 < values["longest_turn"] < values[settled]


def test_each_task_instance_runs_in_the_pod_of_its_map_index(lab: Lab) -> None:
    names = [f"pod-{index}" for index in range(PODS)]
    with lab.round(Candidate.OURS, PODS) as round_:
        round_.database.set_hostnames(names)
        engine = create_engine(round_.database.url)
        with engine.connect() as connection:
            found = connection.scalars(text("SELECT hostname FROM task_instance ORDER BY map_index")).all()
        engine.dispose()
    assert found == names
