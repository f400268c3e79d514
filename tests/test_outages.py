# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the executor stands on goes away, for a while: nothing is lost, nothing is run twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from cluster_lab.apiserver import RequestInfo
from cluster_lab.journal import JournalEvent
from testbed.records import RECOVERED, UNTOUCHED, Run
from testbed.testbed import Testbed
from testbed.waiting import holds_for, wait_for

pytestmark = [pytest.mark.system, pytest.mark.long]

API_OUTAGE = 30.0
DATABASE_OUTAGE = 20.0
"""Seconds."""

LOST = ("lost_1", "lost_2", "lost_3")
WORKING = ("working_1", "working_2")
NEW = ("new_1", "new_2", "new_3")
EXPECTED = dict.fromkeys(LOST, RECOVERED) | dict.fromkeys(WORKING, UNTOUCHED)
EXPECTED_NEW = {"new_1": RECOVERED, "new_2": UNTOUCHED, "new_3": UNTOUCHED}

Outage = Callable[[Testbed], AbstractContextManager[None]]


# ---------------------------------------------------------------------- away altogether


@contextmanager
def api_paused(testbed: Testbed) -> Iterator[None]:
    """Connections to the API server are made, and nothing is answered."""
    assert testbed.control_plane is not None
    with testbed.control_plane.paused():
        yield


@contextmanager
def api_killed(testbed: Testbed) -> Iterator[None]:
    """Connections to the API server are refused."""
    assert testbed.control_plane is not None
    testbed.control_plane.kill_apiserver()
    try:
        yield
    finally:
        testbed.control_plane.start_apiserver()


@pytest.mark.control_plane
@pytest.mark.parametrize("outage", [api_paused, api_killed])
def test_the_api_server_may_be_away(testbed: Testbed, outage: Outage) -> None:
    run = testbed.trigger(outage.__name__)
    begin(run)
    with outage(testbed):
        # Not over yet: what is lost is not reported before the API server is back.
        assert not any(run.ledger(task) for task in LOST)
        launches = testbed.trigger(f"{outage.__name__}_launches")
        holds_for(API_OUTAGE, "the scheduler runs", lambda: bool(testbed.schedulers.alive))
        testbed.schedulers.wait_for_turns(1)
        wait_for("the pods are lost", lambda: are_lost(run))
    finish(testbed, run, launches)


def test_the_database_may_be_away(testbed: Testbed) -> None:
    before = testbed.schedulers.alive
    run = testbed.trigger("database_gone")
    begin(run)
    launches = testbed.trigger("database_gone_launches")
    wait_for("the launches are queued", lambda: set(launches.states().values()) != {None})
    lost = [run.pods(task)[0] for task in LOST]
    with testbed.database.gone():
        testbed.cluster.go_on(*lost)
        holds_for(DATABASE_OUTAGE, "the cluster runs", lambda: testbed.cluster.version() is not None)
        wait_for("the pods are lost", lambda: are_lost(run))
    # Some of Airflow's processes end without a database; whoever runs them starts them again.
    if testbed.schedulers.alive:
        testbed.schedulers.wait_for_turns(1, may_end=True)
    for scheduler in before:
        if not scheduler.process.running:
            testbed.schedulers.count_as_dead(scheduler)
    testbed.restart_ended()
    finish(testbed, run, launches)


# ---------------------------------------------------------------------- there, and in trouble


@contextmanager
def refused(testbed: Testbed) -> Iterator[None]:
    """Too many requests, says the API server, and when to come again."""
    testbed.proxy.faults.fail(429, times=25, when=is_about_pods, retry_after=1)
    yield


@contextmanager
def unavailable(testbed: Testbed) -> Iterator[None]:
    """The API server is overloaded, and says so in different ways."""
    testbed.proxy.faults.fail(503, times=10, when=is_about_pods, retry_after=1)
    testbed.proxy.faults.fail(500, times=5, when=is_about_pods)
    testbed.proxy.faults.fail(504, times=5, when=is_about_pods)
    yield


@contextmanager
def slow(testbed: Testbed) -> Iterator[None]:
    """Each request takes long, half of them after they have been carried out."""
    testbed.proxy.faults.delay(2, times=20, when=is_about_pods)
    testbed.proxy.faults.delay(2, times=20, when=is_about_pods, reply=True)
    yield


@contextmanager
def unanswered(testbed: Testbed) -> Iterator[None]:
    """Requests are carried out, and their answers are lost."""
    testbed.proxy.faults.lose_reply(times=12, when=is_about_pods)
    yield


@contextmanager
def cut(testbed: Testbed) -> Iterator[None]:
    """No watch lives for long, and some start too late."""

    def again() -> bool:
        testbed.proxy.expire_watch()
        testbed.proxy.cut_watches()
        return True

    yield
    holds_for(5, "watches are cut", again)


@contextmanager
def late(testbed: Testbed) -> Iterator[None]:
    """Events come late."""
    testbed.proxy.lag(3)
    yield


@pytest.mark.parametrize("trouble", [refused, unavailable, slow, unanswered, cut, late])
def test_the_api_server_may_be_in_trouble(testbed: Testbed, trouble: Outage) -> None:
    try:
        with trouble(testbed):
            run = testbed.trigger(trouble.__name__)
            launches = testbed.trigger(f"{trouble.__name__}_launches")
        run.wait_for_code(*LOST, *WORKING)
        launches.wait_for_code(*NEW)
        testbed.schedulers.wait_for_turns(5)
        finish(testbed, run, launches)
    finally:
        testbed.proxy.clear()


# ---------------------------------------------------------------------- what all of them have in common


def is_about_pods(info: RequestInfo) -> bool:
    """Whether it is a request of the executor; its watch is not meant."""
    return info.resource == "pods" and info.verb != "watch"


def are_lost(run: Run) -> bool:
    """Whether the pods have been lost that are to be."""
    return all(run.events(task, JournalEvent.FAULT_INJECTED) for task in LOST)


def begin(run: Run) -> None:
    """Wait until each task has a pod, and the healthy ones work."""
    for task in LOST:
        run.wait_for_pods(task, 1)
    run.wait_for_code(*WORKING)


def finish(testbed: Testbed, run: Run, launches: Run) -> None:
    """Let everything come to its end, and compare it with what should have become of it."""
    assert testbed.end(run) == EXPECTED
    assert testbed.end(launches) == EXPECTED_NEW
