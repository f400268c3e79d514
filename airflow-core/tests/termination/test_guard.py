# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The guard with real signals, in this process; ``test_real_worker.py`` has it in a real worker."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
    TaskDeferred,
)
from airflow.sdk.timezone import utcnow
from airflow.triggers.testing import SuccessTrigger

from airflow_resilience.termination import guard
from airflow_resilience.termination.guard import MARGIN, TerminationGuard
from airflow_resilience.termination.own_state import Terminator

HELD = "which is not reported"
LET_OUT = "was not killed within"
SOME = 30 - MARGIN
"""A grace period after which a test that waits in vain goes on."""


class Undisturbed(BaseOperator):
    """Runs what it is told to, and takes no notice of its worker's end."""

    code: Callable[[], Any] = staticmethod(lambda: None)

    @classmethod
    def of(cls, code: Callable[[], Any]) -> Self:
        task = cls(task_id="task")
        task.code = code
        return task

    def execute(self, context: Any) -> Any:
        return self.code()

    def resumed(self, context: Any, event: str) -> Any:
        return event, self.execute(context)


class Disturbed(Undisturbed):
    """Is told of its worker's end."""

    killed = 0

    def on_kill(self) -> None:
        self.killed += 1


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def fail_with(error: BaseException, *, terminated: bool = True) -> Callable[[], Any]:
    def code() -> None:
        if terminated:
            terminate()
        raise error

    return code


def finish() -> str:
    terminate()
    return "result"


@pytest.fixture(autouse=True)
def tasks_run_here(monkeypatch) -> None:
    monkeypatch.setattr("airflow.sdk.bases.operator.ExecutorSafeguard.test_mode", True)


@contextlib.contextmanager
def airflows_handler(task: BaseOperator) -> Iterator[Any]:
    def on_term(signum: int, frame: Any) -> None:
        task.on_kill()

    before = signal.signal(signal.SIGTERM, on_term)
    try:
        yield on_term
    finally:
        signal.signal(signal.SIGTERM, before)


class Asked:
    """Answers what it is told to, the last answer for ever, and counts."""

    def __init__(self, *answers: Terminator, before: Callable[[], None] = lambda: None) -> None:
        self._answers, self._before = list(answers), before
        self.times = 0

    def __call__(self) -> Terminator:
        self._before()
        self.times += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def run(task: BaseOperator, asked: Asked, *, grace_period: float = -MARGIN) -> Any:
    """Run the task as Airflow does. Its worker's patience has run out at once, unless it is given some."""
    with airflows_handler(task) as handler:
        TerminationGuard(task, find_terminator=asked, grace_period=grace_period).arm()
        try:
            return task.execute(context={})
        finally:
            assert signal.getsignal(signal.SIGTERM) is handler


def infrastructure() -> Asked:
    return Asked(Terminator.INFRASTRUCTURE)


FAILURES = [
    AirflowException("exit code 143"),
    AirflowFailException("no use to retry"),
    AirflowTaskTerminated("killed"),
    ConnectionError("the network goes down with the node"),
    SystemExit(0),
    SystemExit(143),
]
RESULTS = [
    AirflowSkipException("nothing to do"),
    AirflowRescheduleException(utcnow()),
    DownstreamTasksSkipped(tasks=["next"]),
    TaskDeferred(trigger=SuccessTrigger(), method_name="resumed"),
]
OWN_ENDS = [AirflowTaskTimeout("own"), AirflowSensorTimeout("own"), KeyboardInterrupt()]


def named(error: BaseException) -> str:
    return type(error).__name__


@pytest.mark.parametrize("operator", [Disturbed, Undisturbed])
@pytest.mark.parametrize("error", FAILURES, ids=named)
def test_a_failure_is_held_back_until_nobody_kills_the_worker(error, operator, caplog):
    with pytest.raises(type(error)) as raised:
        run(operator.of(fail_with(error)), infrastructure())
    assert raised.value is error
    assert [HELD in record.message for record in caplog.records] == [True, False]
    assert caplog.records[0].exc_info[1] is error
    assert LET_OUT in caplog.records[1].message


@pytest.mark.parametrize("error", RESULTS, ids=named)
def test_a_result_of_disturbed_work_is_held_back(error, caplog):
    with pytest.raises(type(error)):
        run(Disturbed.of(fail_with(error)), infrastructure())
    assert f"ended with {named(error)}, {HELD}" in caplog.text


@pytest.mark.parametrize(
    ("operator", "error"),
    [*((Undisturbed, error) for error in RESULTS), *((Disturbed, error) for error in OWN_ENDS)],
)
def test_a_result_of_undisturbed_work_and_the_tasks_own_end_count(operator, error, caplog):
    asked = infrastructure()
    with pytest.raises(type(error)):
        run(operator.of(fail_with(error)), asked)
    assert asked.times == 0
    assert caplog.text == ""


def test_a_normal_return_of_disturbed_work_is_held_back(caplog):
    assert run(Disturbed.of(finish), infrastructure()) == "result"
    assert f"a normal return, {HELD}" in caplog.text
    assert LET_OUT in caplog.text


def test_a_normal_return_of_undisturbed_work_counts(caplog):
    asked = infrastructure()
    assert run(Undisturbed.of(finish), asked) == "result"
    assert asked.times == 0
    assert caplog.text == ""


@pytest.mark.parametrize("error", [*FAILURES, *RESULTS, *OWN_ENDS], ids=named)
def test_without_sigterm_nothing_is_asked(error):
    asked = infrastructure()
    with pytest.raises(type(error)) as raised:
        run(Disturbed.of(fail_with(error, terminated=False)), asked)
    assert raised.value is error
    assert asked.times == 0


def test_an_operator_that_calls_its_own_on_kill_is_not_terminated():
    task = Disturbed(task_id="task")
    task.code = task.on_kill
    asked = infrastructure()
    run(task, asked)
    assert (task.killed, asked.times) == (1, 0)


@pytest.mark.parametrize("answer", [Terminator.USER, Terminator.UNKNOWN])
def test_if_it_was_not_infrastructure_everything_is_as_without_a_guard(answer, caplog):
    task = Disturbed.of(finish)
    assert run(task, Asked(answer), grace_period=SOME) == "result"
    assert task.killed == 1
    assert caplog.text == ""


@pytest.fixture
def naps(monkeypatch) -> list[float]:
    """Have the guard sleep by a clock of its own, and note for how long."""
    naps: list[float] = []
    monkeypatch.setattr(guard.time, "sleep", naps.append)
    monkeypatch.setattr(guard.time, "monotonic", lambda: sum(naps))
    return naps


@pytest.mark.parametrize("silences", [1, 5])
def test_an_airflow_that_does_not_answer_is_asked_again(naps, silences, caplog):
    unanswered = [Terminator.UNKNOWN] * silences
    asked = Asked(*unanswered, Terminator.INFRASTRUCTURE, Terminator.USER, before=terminate)
    assert run(Disturbed.of(finish), asked, grace_period=2.0 * silences) == "result"
    assert HELD in caplog.text


def test_half_of_the_grace_period_is_for_the_report(naps):
    asked = Asked(Terminator.UNKNOWN)
    assert run(Disturbed.of(finish), asked, grace_period=10) == "result"
    assert (sum(naps), asked.times) == (5.0, 6)


def test_on_kill_is_called_as_often_as_the_signal_comes():
    task = Disturbed.of(lambda: (terminate(), terminate()))
    run(task, infrastructure())
    assert task.killed == 2


def test_a_signal_while_the_end_is_held_back_asks_again(caplog):
    task = Disturbed.of(finish)
    asked = Asked(Terminator.INFRASTRUCTURE, Terminator.USER, before=terminate)
    assert run(task, asked, grace_period=SOME) == "result"
    assert asked.times == 2
    assert task.killed == 1, "what it would end has ended"
    assert LET_OUT not in caplog.text


def test_a_signal_that_airflow_does_not_explain_changes_nothing(caplog):
    """A kubelet whose node goes down during a drain sends it again, and all workers of the node ask."""
    signals = [terminate, terminate]
    asked = Asked(
        Terminator.INFRASTRUCTURE, Terminator.UNKNOWN, before=lambda: signals.pop()() if signals else None
    )
    assert run(Disturbed.of(finish), asked) == "result"
    assert asked.times == 3
    assert LET_OUT in caplog.text


def test_an_answer_to_a_second_signal_may_come_late(naps, caplog):
    signals = [terminate, terminate]
    asked = Asked(
        Terminator.INFRASTRUCTURE,
        Terminator.UNKNOWN,
        Terminator.USER,
        before=lambda: signals.pop()() if signals else None,
    )
    assert run(Disturbed.of(finish), asked, grace_period=2.0) == "result"
    assert (asked.times, naps) == (3, [1.0])
    assert LET_OUT not in caplog.text


def test_a_grace_period_of_centuries_is_waited_for():
    """Kubernetes takes it, and Python waits for no more than 292 years."""
    asked = Asked(Terminator.INFRASTRUCTURE, Terminator.USER, before=terminate)
    assert run(Disturbed.of(finish), asked, grace_period=1e10) == "result"


def test_the_execution_timeout_does_not_end_the_wait():
    with airflows_alarm() as alarms:
        run(Disturbed.of(lambda: (signal.setitimer(signal.ITIMER_REAL, 600), terminate())), infrastructure())
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert alarms == []


@contextlib.contextmanager
def airflows_alarm() -> Iterator[list[int]]:
    alarms: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda signum, _: alarms.append(signum))
    try:
        yield alarms
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_before_the_code_begins_counts(caplog):
    task = Disturbed(task_id="task")
    with airflows_handler(task):
        TerminationGuard(task, find_terminator=infrastructure(), grace_period=-MARGIN).arm()
        terminate()
        task.execute(context={})
    assert task.killed == 1
    assert HELD in caplog.text


def test_an_error_of_on_kill_ends_the_code_and_is_held_back(caplog):
    class Raises(Undisturbed):
        def on_kill(self) -> None:
            raise AirflowException("on_kill() breaks execute() by this")

    with pytest.raises(AirflowException, match="breaks"):
        run(Raises.of(finish), infrastructure())
    assert f"AirflowException, {HELD}" in caplog.text


def test_after_the_code_a_signal_is_airflows_alone():
    task = Disturbed(task_id="task")
    asked = infrastructure()
    with airflows_handler(task):
        TerminationGuard(task, find_terminator=asked, grace_period=-MARGIN).arm()
        task.execute(context={})
        terminate()
    assert (task.killed, asked.times) == (1, 0)


def test_the_codes_own_handler_outlives_it():
    def own(signum: int, frame: Any) -> None: ...

    task = Undisturbed.of(lambda: signal.signal(signal.SIGTERM, own))
    with airflows_handler(task):
        TerminationGuard(task, find_terminator=infrastructure(), grace_period=-MARGIN).arm()
        task.execute(context={})
        assert signal.getsignal(signal.SIGTERM) is own


def test_a_task_that_goes_on_after_a_deferral_is_guarded(caplog):
    task = Disturbed.of(finish)
    with airflows_handler(task):
        TerminationGuard(task, find_terminator=infrastructure(), grace_period=-MARGIN).arm()
        result = task.resume_execution(next_method="resumed", next_kwargs={"event": "e"}, context={})
    assert result == ("e", "result")
    assert caplog.text.count(HELD) == 1, "execute(), which it calls, is not guarded by itself"


def test_an_operator_whose_execute_was_replaced_keeps_it():
    def replaced(context: Any) -> Any:
        return task.execute

    task = Undisturbed(task_id="task")
    task.execute = replaced
    assert run(task, infrastructure()) is replaced


def test_without_airflows_handler_the_signal_is_the_end_as_without_a_guard():
    task = Disturbed(task_id="task")
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        TerminationGuard(task, find_terminator=infrastructure(), grace_period=30).arm()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "execute" not in vars(task)


def test_only_the_main_thread_can_arm_it():
    task = Disturbed(task_id="task")
    guard = TerminationGuard(task, find_terminator=infrastructure(), grace_period=30)
    with airflows_handler(task) as handler, ThreadPoolExecutor(1) as other_thread:
        with pytest.raises(ValueError, match="main thread"):
            other_thread.submit(guard.arm).result()
        assert signal.getsignal(signal.SIGTERM) is handler
    assert "execute" not in vars(task)
