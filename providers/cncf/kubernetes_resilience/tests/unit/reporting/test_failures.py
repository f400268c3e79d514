# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.reporting.failures import (
    MOST_BUCKETS,
    Count,
    Filter,
    Outcome,
    outcomes_of,
    summarise,
)
from airflow_resilience.decision import Action
from airflow_resilience.ledger_queries import Failures, RecordedFailure, TaskFailure
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.termination.exceptions import explain

from ...support.entries import lost

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def failure(row_id, entry=None, state=None, dag="dag", task="task", at=NOON, was_stuck=False):
    key = TaskInstanceKey(dag, task, "run", 1, -1)
    entry = entry or lost()
    return RecordedFailure(row_id=row_id, at=at, key=key, entry=entry, try_state=state, was_stuck=was_stuck)


def outcomes(*failures):
    return [item.outcome for item in outcomes_of(failures)]


def summary(*failures, since=NOON - DAY, until=NOON + DAY, is_cut=False, others=()):
    found = Failures(failures, is_cut, 0)
    return summarise(found, Failures(others, False, 0), [], since=since, until=until)


def count(name, relaunched, charged, suspected=None, words=None):
    return Count(name=name, in_words=words, relaunched=relaunched, charged=charged, suspected=suspected)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("success", Outcome.HEALED),
        ("skipped", Outcome.HEALED),
        ("running", Outcome.UNDER_WAY),
        ("queued", Outcome.UNDER_WAY),
        ("deferred", Outcome.UNDER_WAY),
        ("failed", Outcome.FAILED_BY_ITSELF),
        ("up_for_retry", Outcome.FAILED_BY_ITSELF),
        (None, Outcome.NOT_KNOWN),
    ],
)
def test_what_became_of_a_relaunch_is_said_by_the_state_of_the_try(state, outcome):
    assert outcomes(failure(1, state=state)) == [outcome]


@pytest.mark.parametrize("state", ["failed", "up_for_retry"])
def test_a_relaunch_that_airflow_fails_for_its_time_in_the_queue_is_at_the_cost_of_the_task(state):
    first, last = failure(1, state=state, was_stuck=True), failure(2, lost(2), state, was_stuck=True)
    assert outcomes(last, first) == [Outcome.CHARGED, Outcome.FAILED_AGAIN]


def test_a_relaunch_that_failed_again_is_told_from_the_last_one():
    first, last = failure(1, state="success", at=NOON), failure(2, lost(2), "success", at=NOON)
    assert outcomes(last, first) == [Outcome.HEALED, Outcome.FAILED_AGAIN]
    # Clocks differ: what comes last is said by the order of rows.
    late, early = failure(1, state="success", at=NOON + DAY), failure(2, lost(2), "success", at=NOON)
    told = outcomes_of([early, late])
    assert [(item.failure.row_id, item.outcome) for item in told] == [
        (1, Outcome.FAILED_AGAIN),
        (2, Outcome.HEALED),
    ]


def test_other_task_instances_are_other_tries():
    assert outcomes(failure(2, state="success"), failure(1, state="success", task="other")) == [
        Outcome.HEALED,
        Outcome.HEALED,
    ]


@pytest.mark.parametrize("action", [Action.COUNT, Action.FAIL])
def test_a_failure_at_the_cost_of_the_task(action):
    assert outcomes(failure(1, lost(action=action), "success")) == [Outcome.CHARGED]


def test_totals():
    told = summary(
        failure(4, lost(2, Action.COUNT, Phase.EXECUTION, ran_out=True), "failed"),
        failure(3, lost(phase=Phase.EXECUTION), "failed"),
        failure(2, lost(), "success", task="healed"),
        failure(1, lost(action=Action.COUNT), "failed", task="own"),
    )
    assert (told.failures, told.launches, told.executions) == (4, 2, 2)
    assert (told.relaunched, told.ran_out) == (2, 1)
    assert {outcome: number for outcome, number in told.outcomes.items() if number} == {
        Outcome.HEALED: 1,
        Outcome.FAILED_AGAIN: 1,
        Outcome.CHARGED: 2,
    }
    assert sum(told.outcomes.values()) == told.failures


def test_most_failures_first():
    told = summary(
        failure(1, lost(node="b", cause="drain")),
        failure(2, lost(node="a", cause="drain", node_is_suspect=True), task="t2", dag="x"),
        failure(3, lost(node="b", cause="oom", action=Action.COUNT), task="t3", dag="x"),
    )
    assert told.nodes == [count("b", 1, 1), count("a", 1, 0, suspected=NOON)]
    assert told.causes == [count("drain", 2, 0), count("oom", 0, 1)]
    assert told.dags == [count("x", 1, 1), count("dag", 1, 0)]
    assert [found.failures for found in told.dags] == [2, 1]


@pytest.mark.parametrize("days", [0.01, 0.5, 1, 7, 30, 92])
def test_every_failure_is_in_one_of_few_buckets(days):
    since, until = NOON - timedelta(days=days), NOON
    last = until - timedelta(microseconds=1)
    told = summary(failure(1, at=since), failure(2, at=last, task="t2"), since=since, until=until)
    assert sum(bucket.relaunched + bucket.charged for bucket in told.buckets) == 2
    # The first one begins before the time does.
    assert 10 <= len(told.buckets) <= MOST_BUCKETS + 1
    assert all(left.ends == right.begins for left, right in zip(told.buckets, told.buckets[1:], strict=False))


def test_a_day_has_buckets_of_half_an_hour():
    buckets = summary(since=NOON - DAY, until=NOON).buckets
    assert (len(buckets), buckets[0].ends - buckets[0].begins) == (MOST_BUCKETS, timedelta(minutes=30))


def test_a_node_was_suspected_last_at_its_latest_failure():
    suspect = lost(node="a", node_is_suspect=True)
    early, late = failure(1, suspect), failure(2, suspect, task="other", at=NOON + timedelta(hours=1))
    assert summary(late, early).nodes == [count("a", 2, 0, suspected=late.at)]


def test_a_time_that_was_cut_begins_with_what_was_found():
    told = summary(failure(2, at=NOON), failure(1, at=NOON - timedelta(hours=1)), is_cut=True)
    assert (told.since, told.is_cut) == (NOON - timedelta(hours=1), True)
    assert told.buckets[0].begins <= told.since < told.buckets[0].ends


def test_tasks_that_failed_without_losing_a_pod_are_counted_by_themselves():
    others = [
        TaskFailure(at=NOON, key=failure(1).key, context=context)
        for context in (explain(ValueError()), explain(KeyError()), lost().context)
    ]
    told = summary(failure(1), others=others)
    assert told.others == {"APPLICATION": 2, "TIMEOUT": 0, "USER_ACTION": 0, "INFRASTRUCTURE": 1}
    assert told == summary(failure(1)).model_copy(update={"others": told.others})


def test_no_failures():
    told = summary()
    assert (told.failures, told.causes, told.ran_out) == (0, [], 0)
    assert len(told.buckets) > 10


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(cause="oom"),
        Filter(node="node-2"),
        Filter(phase=Phase.EXECUTION),
        Filter(outcome=Outcome.CHARGED),
        Filter(relaunched=False),
        Filter(ran_out=True),
        Filter(after=NOON),
        Filter(cause="oom", node="node-2"),
    ],
)
def test_each_number_leads_to_its_rows(wanted):
    one, other = outcomes_of(
        [
            failure(
                2, lost(action=Action.COUNT, phase=Phase.EXECUTION, ran_out=True, cause="oom", node="node-2")
            ),
            failure(1, lost(), dag="other", at=NOON - DAY),
        ]
    )
    assert (wanted.chooses(one), wanted.chooses(other)) == (True, False)
    assert Filter().chooses(other)


def test_the_end_of_a_chosen_time_is_not_part_of_it():
    (told,) = outcomes_of([failure(1)])
    assert not Filter(before=NOON).chooses(told)
    assert Filter(before=NOON + DAY).chooses(told)


def test_a_pod_that_is_heard_of_again_is_one_pod():
    """It was given up, and its worker started and was lost after all: what was said last counts."""
    given_up = failure(1, lost(), "success")
    heard_of = failure(2, lost(phase=Phase.EXECUTION), "success")
    told = summary(given_up, heard_of)
    assert (told.failures, told.launches, told.executions) == (1, 0, 1)
    assert (told.outcomes[Outcome.HEALED], told.outcomes[Outcome.FAILED_AGAIN]) == (1, 0)
