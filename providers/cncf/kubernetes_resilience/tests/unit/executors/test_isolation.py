# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Phases and batches: what fails is found, counted, tried again, and given up; nothing else is held up."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy.exc import DataError, OperationalError

from airflow.providers.cncf.kubernetes_resilience.executors import isolation as isolation_module
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import (
    ATTEMPTS,
    FORGOTTEN_AFTER,
    REMINDER_INTERVAL,
    DatabaseAwayError,
    Isolation,
)
from airflow_resilience.metrics import stats

from ...support.harness import Clock


class OddError(Exception):
    """One that nobody expects."""


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def isolation(clock):
    return Isolation(clock)


@pytest.fixture
def counted(monkeypatch):
    """Give the steps of which a failure was counted."""
    steps = []
    monkeypatch.setattr(
        stats(), "incr", lambda name, *, tags: steps.append((name.rpartition(".")[2], tags["step"]))
    )
    return steps


@pytest.fixture
def said(caplog):
    """Give a function that tells what was logged as an error, and with how many tracebacks."""
    caplog.set_level(logging.ERROR, logger=isolation_module.__name__)

    def tell():
        records = [record for record in caplog.records if record.name == isolation_module.__name__]
        return len(records), sum(bool(record.exc_info) for record in records)

    return tell


class Work:
    """Something that fails for some items, and keeps what it was asked for."""

    def __init__(self, *bad, error=None):
        self.bad, self.error = set(bad), error or OddError("odd")
        self.asked: list[list[int]] = []
        self.given_up: list[int] = []

    def __call__(self, items):
        self.asked.append(list(items))
        if self.bad.intersection(items):
            raise self.error
        return [item * 10 for item in items]

    def give_up(self, item, error):
        assert error is self.error
        self.given_up.append(item)


def test_a_phase_that_fails_is_logged_now_and_then_and_counted_each_time(isolation, clock, counted, said):
    def fail():
        raise OddError

    for _ in range(10):
        assert isolation.run("collect", fail) is False
        clock.advance(1)
    assert said() == (1, 1)
    assert counted == [("unhandled_errors", "collect")] * 10
    clock.advance(REMINDER_INTERVAL)
    isolation.run("collect", fail)
    assert said() == (2, 1)
    isolation.run("clean-up", fail)
    assert said() == (3, 2), "another phase is another thing"


@pytest.mark.parametrize(("returned", "is_more"), [(None, False), (False, False), (True, True)])
def test_a_phase_says_whether_more_is_to_do(isolation, returned, is_more):
    assert isolation.run("receive", lambda *args: returned, 1, 2) is is_more


@pytest.mark.parametrize("work", ["run", "batch"])
def test_a_database_that_is_away_is_no_items_fault(isolation, monkeypatch, counted, work):
    monkeypatch.setattr(isolation_module, "database_answers", lambda: False)
    broken = Work(1, error=OperationalError("SELECT 1", {}, Exception("away")))
    begin = {
        "run": lambda: isolation.run("settle", broken, [1]),
        "batch": lambda: isolation.batch("settle", [0, 1, 2], broken, give_up=broken.give_up),
    }[work]
    with pytest.raises(DatabaseAwayError):
        begin()
    assert len(broken.asked) == 1, "it is not asked again in the same turn"
    assert (broken.given_up, counted) == ([], [])


def test_an_exception_of_another_kind_does_not_ask_the_database(isolation, monkeypatch):
    monkeypatch.setattr(isolation_module, "database_answers", lambda: pytest.fail("asked"))
    assert isolation.batch("settle", [0, 1], Work(1)) == [0]


def test_the_real_database_is_asked(session, monkeypatch):
    assert isolation_module.database_answers()

    def away(**kwargs):
        raise OperationalError("connect", {}, Exception("refused"))

    monkeypatch.setattr(isolation_module, "create_session", away)
    assert not isolation_module.database_answers()


def test_the_one_that_fails_is_found_in_halves(isolation, monkeypatch):
    monkeypatch.setattr(isolation_module, "database_answers", lambda: True)
    work = Work(13, error=DataError("INSERT", {}, Exception("refused")))
    done = isolation.batch("settle", range(100), work, give_up=work.give_up)
    assert sorted(done) == [item * 10 for item in range(100) if item != 13]
    assert len(work.asked) < 20


def test_it_is_tried_alone_later_and_given_up_in_the_end(isolation, clock, counted, said):
    work = Work(1)
    assert isolation.batch("settle", [0, 1, 2], work, give_up=work.give_up) == [0, 20]
    work.asked.clear()
    assert isolation.batch("settle", [0, 1, 2], work, give_up=work.give_up) == [0, 20]
    assert work.asked == [[0, 2]], "not at once again, and not together with the others"
    for _ in range(ATTEMPTS - 1):
        assert work.given_up == counted == []
        clock.advance(8)
        isolation.batch("settle", [0, 1, 2], work, give_up=work.give_up)
    assert work.given_up == [1]
    assert counted == [("unhandled_errors", "settle")]
    assert said() == (1, 1)
    assert isolation._suspects == {}


def test_what_passes_is_forgotten(isolation, clock):
    work = Work(1)
    for _ in range(3):
        for bad in ({1}, set()):
            work.bad = bad
            for _ in range(ATTEMPTS - 1):
                isolation.batch("settle", [1], work, give_up=work.give_up)
                clock.advance(8)
    assert work.given_up == []
    assert isolation._suspects == {}


def test_one_that_does_not_come_again_is_forgotten(isolation, clock):
    work = Work(1)
    isolation.batch("settle", [1], work, give_up=work.give_up)
    clock.advance(2 * FORGOTTEN_AFTER)
    isolation.batch("settle", [2], work, give_up=work.give_up)
    assert isolation._suspects == {}


def test_one_whose_end_fails_too_is_logged(isolation, clock, said):
    work = Work(1)

    def fail(item, error):
        raise OddError("worse")

    for _ in range(ATTEMPTS):
        assert isolation.batch("settle", [0, 1], work, give_up=fail) == [0]
        clock.advance(8)
    assert said() == (2, 2)


def test_without_an_end_it_is_left_out_each_time(isolation, said):
    for _ in range(2 * ATTEMPTS):
        assert isolation.batch("cancel", [0, 1, 2], Work(1)) == [0, 20]
    assert said() == (1, 1)


def test_one_by_itself(isolation):
    work = Work(1)
    for item in (0, 1):
        isolation.alone("act", item, lambda item: work([item]), name=str, give_up=work.give_up)
    assert work.asked == [[0], [1]]
