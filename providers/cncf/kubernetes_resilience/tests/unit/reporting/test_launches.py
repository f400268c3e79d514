# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow.providers.cncf.kubernetes_resilience.reporting.launches import views_of_tries
from airflow.providers.cncf.kubernetes_resilience.reporting.views import EndView, FailureView
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import Action
from airflow_resilience.ledger import LAUNCH_FAILURE_EVENT, LAUNCH_HELD_EVENT
from airflow_resilience.ledger_entries import HeldLaunch
from airflow_resilience.ledger_queries import TaskInstanceEvents, TryRow, WorkerEvent
from airflow_resilience.outages import Dependency, DependencyKind
from airflow_resilience.propagation.audit import EVENT
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.termination.exceptions import explain

from ...support.entries import DUE, lost

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOSS = (1, 3)


def minute(number):
    return NOON + timedelta(minutes=number)


def row(state, number=1, hostname="", started=None, ended=None, max_tries=1):
    return TryRow(number, state, hostname, started, ended, max_tries)


def fails(at, entry, number=1):
    return WorkerEvent(minute(at), number, LAUNCH_FAILURE_EVENT, entry)


def says(at, state, number=1):
    return WorkerEvent(minute(at), number, state, None)


def views(*events, present, past=()):
    return views_of_tries(TaskInstanceEvents(events, past, present, False))


def budgets(view):
    """Return what is used and allowed: of relaunches, of infrastructure retries, and of retries."""
    found = (view.relaunches, view.infrastructure, view.retries)
    return tuple(budget and (budget.used, budget.allowed) for budget in found)


def ends(view):
    return [(launch.number, launch.end.value, launch.state) for launch in view.launches]


def test_a_task_that_has_never_been_launched():
    assert views(present=row(None, 0)) == []
    assert views(present=row("scheduled", 0)) == []
    assert views(present=row("upstream_failed", 0)) == []


@pytest.mark.parametrize("events", [[says(1, "running"), says(5, "success")], []], ids=["3.2", "before"])
def test_a_task_without_trouble(events):
    (view,) = views(*events, present=row("success", 1, "pod-a", minute(1), minute(5)))
    (launch,) = view.launches
    assert (launch.number, launch.end, launch.state, launch.host) == (1, "reported", "success", "pod-a")
    assert (launch.started_at, launch.ended_at) == (minute(1), minute(5))
    assert budgets(view) == (None, None, (0, 1))


@pytest.mark.parametrize("event", [LAUNCH_FAILURE_EVENT, LAUNCH_HELD_EVENT, EVENT])
def test_a_row_of_another_version_is_no_end(event):
    (view,) = views(says(1, "running"), says(2, event), present=row("running", 1, "pod-a", minute(1)))
    assert ends(view) == [(1, "running", "running")]


def test_a_failed_launch_and_the_one_that_waits():
    (view,) = views(fails(1, lost()), present=row("queued"))
    assert ends(view) == [(1, "failed", None), (2, "waiting", "queued")]
    failed, waits = view.launches
    assert (failed.failure, failed.host, failed.started_at, failed.ended_at) == (
        FailureView.of(lost()),
        "pod-1",
        None,
        minute(1),
    )
    assert (waits.due, waits.host) == (DUE, None)
    assert budgets(view) == ((1, 1), None, (0, 1))


def test_what_the_api_says_of_a_failed_launch():
    (view,) = views(fails(1, lost()), present=row("queued"))
    assert view.launches[0].model_dump(mode="json") == {
        "number": 1,
        "end": "failed",
        "state": None,
        "host": "pod-1",
        "started_at": None,
        "ended_at": "2026-03-01T12:01:00Z",
        "due": None,
        "held_for": None,
        "held_since": None,
        "failure": {
            "phase": "launch",
            "launch": 1,
            "pod": "pod-1",
            "namespace": "airflow",
            "uid": "uid-1",
            "node": "node-1",
            "cause": "drain",
            "cause_in_words": None,
            "category": "INFRASTRUCTURE",
            "reason": "WORKER_TERMINATION",
            "source": "EXECUTOR",
            "platform_reason": "EvictionByEvictionAPI",
            "container": None,
            "container_type": None,
            "exit_code": None,
            "signal": None,
            "message": None,
            "decision": {
                "action": "relaunch",
                "policy": "built-in",
                "rule": "infrastructure",
                "explanation": "launch 1 of 2; policy built-in, rule infrastructure",
                "delay": 0.0,
                "avoid_node": "none",
                "mutation": None,
                "budget": {"used": 1, "allowed": 1},
                "ran_out": False,
            },
            "due": "2026-03-01T12:01:00Z",
            "task_instance_id": "ti",
            "next_task_instance_id": None,
        },
    }


def test_a_loss_of_a_running_worker_and_the_one_that_runs():
    loss = lost(1, phase=Phase.EXECUTION, budget=LOSS)
    (view,) = views(
        says(1, "running"), fails(4, loss), says(6, "running"), present=row("running", 1, "pod-b", minute(6))
    )
    assert ends(view) == [(1, "failed", None), (2, "running", "running")]
    first, second = view.launches
    assert (first.started_at, first.ended_at) == (minute(1), minute(4))
    assert (second.started_at, second.host) == (minute(6), "pod-b")
    assert budgets(view) == (None, (1, 3), (0, 1))


def test_launches_of_a_try_have_different_numbers():
    """The ledger counts them anew when a worker has started the task."""
    first, second = (
        lost(1, phase=Phase.EXECUTION, worker_uid=uid, worker_name=uid, budget=LOSS) for uid in ("a", "b")
    )
    (view,) = views(
        says(1, "running"),
        fails(2, first),
        says(3, "running"),
        fails(4, second),
        present=row("running", 1, "pod-c", minute(6)),
    )
    assert ends(view) == [(1, "failed", None), (2, "failed", None), (3, "running", "running")]


def test_a_failure_that_counts_is_the_last_launch_of_its_try():
    counted = lost(2, Action.COUNT)
    second, first = views(
        fails(1, lost()),
        fails(2, counted),
        says(3, "failed"),
        says(5, "running", 2),
        past=[row("failed", 1, "", None, minute(3))],
        present=row("running", 2, "pod-c", minute(5)),
    )
    assert ends(first) == [(1, "failed", None), (2, "failed", None)]
    assert (first.state, budgets(first)) == ("failed", ((1, 1), None, (0, 1)))
    assert ends(second) == [(1, "running", "running")]
    assert budgets(second) == (None, None, (1, 1))


def test_rows_of_version_0_1_0_do_not_say_how_much_is_allowed():
    (view,) = views(
        fails(1, lost(budget=None)), fails(2, lost(2, Action.COUNT, budget=None)), present=row("failed")
    )
    assert budgets(view) == ((1, None), None, (0, 1))


@pytest.mark.parametrize("state", ["deferred", "awaiting_input"])
def test_a_task_that_defers_has_a_launch_before_and_one_after(state):
    (view,) = views(
        says(1, "running"),
        says(2, state),
        says(8, "running"),
        says(9, "success"),
        present=row("success", 1, "pod-b", minute(8), minute(9)),
    )
    assert ends(view) == [(1, "reported", state), (2, "reported", "success")]
    assert [launch.host for launch in view.launches] == [None, "pod-b"]


def test_a_deferred_task_whose_resumption_waits():
    (view,) = views(says(1, "running"), says(2, "deferred"), present=row("queued", 1, "pod-a", minute(1)))
    assert ends(view) == [(1, "reported", "deferred"), (2, "waiting", "queued")]
    (view,) = views(says(1, "running"), says(2, "deferred"), present=row("deferred", 1, "pod-a", minute(1)))
    assert ends(view) == [(1, "reported", "deferred")]


def test_what_was_said_last_about_a_worker_counts():
    given_up = lost(1, cause="unschedulable")
    started = lost(1, phase=Phase.EXECUTION, budget=LOSS)
    (view,) = views(fails(1, given_up), says(2, "running"), fails(3, started), present=row("queued"))
    assert ends(view) == [(1, "failed", None), (2, "waiting", "queued")]
    assert view.launches[0].failure == FailureView.of(started)


def ends_by(at, context, number=1):
    return WorkerEvent(minute(at), number, EVENT, StoredContext("ti", number, context))


def test_what_has_ended_a_try_that_did_not_lose_its_pod():
    own, marked = explain(ValueError("own")), explain(KeyError("as if somebody had marked it"))
    second, first = views(
        says(1, "running"),
        says(2, "up_for_retry"),
        ends_by(2, own),
        says(5, "running", 2),
        ends_by(6, marked, 2),
        past=[row("failed", 1, "pod-a", minute(1), minute(2))],
        present=row("failed", 2, "pod-b", minute(5), minute(6)),
    )
    assert (first.ended_by, ends(first)) == (EndView.of(minute(2), own), [(1, "reported", "up_for_retry")])
    assert (second.ended_by, ends(second)) == (EndView.of(minute(6), marked), [(1, "reported", "failed")])


def test_a_task_for_which_there_was_no_pod_has_a_try_all_the_same():
    (view,) = views(ends_by(1, explain(None)), present=row("failed"))
    assert (ends(view), view.ended_by.at) == ([], minute(1))


def test_what_had_ended_a_run_of_the_try_before_this_one_does_not_count():
    (view,) = views(says(1, "running"), ends_by(2, explain(None)), says(3, "running"), present=row("running"))
    assert view.ended_by is None


def test_a_task_that_failed_by_itself_and_waits_for_its_next_try():
    past = row("failed", 1, "pod-a", minute(1), minute(2))
    (view,) = views(
        says(1, "running"),
        says(2, "up_for_retry"),
        past=[past],
        present=row("up_for_retry", 1, "pod-a", minute(1), minute(2)),
    )
    assert ends(view) == [(1, "reported", "up_for_retry")]


def test_the_newest_try_comes_first_and_older_events_may_be_missing():
    view = views(
        fails(1, lost(), number=2),
        past=[row("failed", 1, "pod-a", minute(0), minute(1)), row("failed", 2)],
        present=row("queued", 3),
    )
    assert [item.number for item in view] == [3, 2, 1]


def test_a_try_that_was_cleared_while_it_ran_is_followed_by_no_retry():
    cleared = ExecutionContext(
        StateChangeCategory.USER_ACTION, StateChangeReason.MANUAL_CLEAR, ContextSource.API
    )
    second, _ = views(
        says(1, "running"),
        ends_by(2, cleared),
        says(5, "running", 2),
        past=[row("failed", 1, "pod-1", minute(1), minute(2), max_tries=0)],
        present=row("running", 2, "pod-2", minute(5), max_tries=1),
    )
    assert budgets(second) == (None, None, (0, 0))


HUB = Dependency(DependencyKind.REGISTRY, "docker.io")

QUOTA = Dependency(DependencyKind.QUOTA, "airflow")


def held(at, dependency=HUB):
    why = HeldLaunch(ti_id="ti", dependency=dependency, away_since=NOON)
    return WorkerEvent(minute(at), 1, LAUNCH_HELD_EVENT, why)


@pytest.mark.parametrize(
    ("events", "state", "expected"),
    [
        ([held(1)], "queued", (HUB, minute(1))),
        ([held(1), held(2, QUOTA)], "queued", (QUOTA, minute(2))),
        ([held(1), fails(2, lost(dependency=HUB, away_since=NOON))], "queued", (HUB, minute(1))),
        ([held(1), fails(2, lost(dependency=HUB))], "queued", (None, None)),
        ([held(1), fails(2, lost())], "queued", (None, None)),
        ([held(1), says(2, "running")], "running", (None, None)),
    ],
    ids=["before its first launch", "for something else", "again", "no more", "lost otherwise", "runs"],
)
def test_what_a_launch_that_waits_is_held_for(events, state, expected):
    (view,) = views(*events, present=row(state))
    dependency, since = expected
    assert view.launches[-1].held_for == (dependency and str(dependency))
    assert view.launches[-1].held_since == since
