# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""With real signals, in this process; ``termination/test_real_worker.py`` has it in a real worker."""

from __future__ import annotations

import copy
import functools
import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.execution_time.timeout import timeout

import airflow_resilience
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.propagation import reading
from airflow_resilience.propagation.observer import FailureObserver
from airflow_resilience.propagation.stored import PREVIOUS_FAILURE, StoredContext
from airflow_resilience.termination.exceptions import MESSAGE_LIMIT, explain
from airflow_resilience.termination.own_state import Answer, Terminator

from ..termination.test_exceptions import exceptions

CLEARED = ExecutionContext(
    StateChangeCategory.USER_ACTION,
    StateChangeReason.MANUAL_CLEAR,
    ContextSource.API,
    {"state": "restarting"},
)
BY_USER = Answer(Terminator.USER, CLEARED)
TI = SimpleNamespace(id="id", try_number=1)


class Task(BaseOperator):
    """Runs what it is told to."""

    code: Callable[[], Any] = staticmethod(lambda: None)

    def execute(self, context: Any) -> Any:
        return self.code()


class Told(Task):
    """Is told why it is ended."""

    def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
        self.told = execution_context


class NotTold(Task):
    """Has an on_kill() as Airflow knows it."""

    killed = 0

    def on_kill(self) -> None:
        self.killed += 1


@pytest.fixture(autouse=True)
def tasks_run_here(monkeypatch) -> None:
    monkeypatch.setattr("airflow.sdk.bases.operator.ExecutorSafeguard.test_mode", True)
    monkeypatch.setattr(reading._Process, "observer", None)


class Run:
    """A task, run as Airflow does."""

    def __init__(self, task: Task, answer: Answer) -> None:
        self.task, self.asked = task, 0
        self._answer = answer
        self.stored: list[ExecutionContext] = []
        self.observer = FailureObserver(task, ti_id="id", ask=self._ask, store=self.stored.append)
        self.observer.handle_signals()
        self.observer.wrap()
        reading.observe(self.observer)

    def _ask(self) -> Answer:
        self.asked += 1
        return self._answer

    def __call__(self, code: Callable[[], Any]) -> Any:
        self.task.code = code
        try:
            return self.task.execute(context={})
        except BaseException as error:  # noqa: BLE001 - as Airflow does
            return error


@pytest.fixture
def run_of(request) -> Iterator[Callable[..., Run]]:
    before = signal.getsignal(signal.SIGTERM)

    def make(operator: type[Task] = Task, answer: Answer = BY_USER) -> Run:
        task = operator(task_id="task")
        signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
        return Run(task, answer)

    yield make
    signal.signal(signal.SIGTERM, before)


def fail(error: BaseException | None = None) -> Any:
    raise error or ValueError("own")


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_a_failure_is_stored_once_and_told(run_of):
    run = run_of()
    error = run(fail)
    context = airflow_resilience.execution_context({"ti": TI, "exception": error})
    assert (context.category, context.reason) == ("APPLICATION", "TASK_ERROR")
    assert run.stored == [context]
    assert (run.asked, airflow_resilience.current_termination()) == (0, None)


def test_a_success_and_a_skip_are_no_failures(run_of):
    assert run_of()(lambda: "result") == "result"
    run = run_of()
    run(lambda: fail(exceptions.AirflowSkipException()))
    assert run.stored == []
    assert airflow_resilience.execution_context({"ti": TI, "exception": None}) is None


def test_a_failure_beside_the_operators_code_is_stored_when_it_is_first_told(run_of):
    run, error = run_of(), KeyError("in a template")
    run(lambda: None)
    assert airflow_resilience.execution_context({"ti": TI, "exception": error}) == explain(error)
    assert run.stored == [explain(error)]


def test_on_kill_is_told_if_it_takes_it(run_of):
    run = run_of(Told)
    run(terminate)
    assert run.task.told == CLEARED
    assert "on_kill" not in vars(run.task)
    assert run.asked == 1


def test_on_kill_as_airflow_knows_it_is_called_and_nothing_is_asked(run_of):
    run = run_of(NotTold)
    run(terminate)
    assert (run.task.killed, run.asked) == (1, 0)
    assert airflow_resilience.current_termination() == CLEARED
    assert airflow_resilience.current_termination() == CLEARED
    assert run.asked == 1


def test_on_kill_is_told_of_a_timeout(run_of):
    run = run_of(Told)
    run(lambda: fail(exceptions.AirflowTaskTimeout("too long")))
    run.task.on_kill()
    assert (run.task.told.category, run.task.told.reason) == ("TIMEOUT", "EXECUTION_TIMEOUT")
    assert airflow_resilience.current_termination() == run.task.told == run.stored[0]
    assert run.asked == 0


def test_a_failure_of_a_task_that_is_ended_has_the_reason_of_that(run_of):
    run = run_of(NotTold)
    run(lambda: (terminate(), fail()))
    (context,) = run.stored
    assert (context.category, context.reason, context.source) == ("USER_ACTION", "MANUAL_CLEAR", "API")
    assert context.metadata["exception"] == "builtins.ValueError"
    assert context.metadata["state"] == "restarting"


def test_a_timeout_of_a_task_that_is_ended_stays_one(run_of):
    run = run_of(NotTold)
    run(lambda: (terminate(), fail(exceptions.AirflowTaskTimeout())))
    assert run.stored[0].category == "TIMEOUT"


def test_if_airflow_does_not_say_it_is_unknown(run_of):
    run = run_of(Told, Answer(Terminator.UNKNOWN))
    error = run(lambda: (terminate(), fail()))
    assert run.task.told is None
    assert airflow_resilience.current_termination() is None
    assert run.stored == [explain(error)]


def test_each_signal_asks_anew(run_of):
    run = run_of(Told)
    run(lambda: (terminate(), terminate()))
    assert run.asked == 2


def test_what_cannot_be_stored_is_told_all_the_same(run_of, caplog):
    run = run_of()
    run.observer._store = lambda context: 1 / 0
    error = run(fail)
    assert "could not be stored" in caplog.text
    assert airflow_resilience.execution_context({"ti": TI, "exception": error}) == explain(error)


def test_an_error_of_on_kill_leaves_the_operator_as_it_was(run_of):
    class Raises(Told):
        def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
            raise ValueError("breaks execute()")

    run = run_of(Raises)
    assert str(run(terminate)) == "breaks execute()"
    assert "on_kill" not in vars(run.task)


def test_the_code_meets_the_operator_as_it_is(run_of):
    run, seen = run_of(Told), []
    run(lambda: seen.append((set(vars(run.task)), copy.copy(run.task).execute.__self__ is not run.task)))
    assert seen == [(set(vars(run.task)), True)]
    assert not {"execute", "resume_execution", "on_kill"} & set(vars(run.task))


def test_a_forked_process_has_airflows_handler_only(run_of):
    run = run_of(Told)

    def fork() -> int:
        if (child := os.fork()) == 0:
            terminate()
            os._exit(run.asked)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert run(fork) == 0


def test_the_previous_failure_is_that_of_this_task_instance(monkeypatch):
    assert airflow_resilience.previous_failure({"ti": TI}) is None
    monkeypatch.setenv(PREVIOUS_FAILURE, json.dumps(StoredContext("id", 1, CLEARED).to_dict()))
    assert airflow_resilience.previous_failure({"ti": TI}) == CLEARED
    assert airflow_resilience.previous_failure({"ti": SimpleNamespace(id="other")}) is None
    assert airflow_resilience.previous_failure({}) is None


class TestDagProcessor:
    """A callback there: Airflow answers from the database, and no task runs in the process."""

    @pytest.fixture
    def stored(self, monkeypatch) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def get_one(**criteria: Any) -> Any:
            assert criteria["map_index"] == -1
            return found.get(criteria["task_id"])

        monkeypatch.setattr("airflow.sdk.bases.xcom.BaseXCom.get_one", get_one)
        return found

    def ask(self, **ti: Any) -> ExecutionContext | None:
        place = {"dag_id": "dag", "run_id": "run", "task_id": "task", "map_index": None}
        return airflow_resilience.execution_context({"ti": SimpleNamespace(**place, **ti)})

    def test_it_is_told_what_is_stored(self, stored):
        stored["task"] = StoredContext("id", 2, CLEARED).to_json()
        assert self.ask(id="id", try_number=2) == CLEARED

    def test_it_is_not_told_of_another_try_or_run(self, stored):
        stored["task"] = StoredContext("id", 2, CLEARED).to_json()
        assert self.ask(id="id", try_number=3) is None
        assert self.ask(id="other", try_number=2) is None

    def test_nothing_is_stored(self, stored):
        assert self.ask(id="id", try_number=1) is None

    def test_airflow_does_not_answer(self, monkeypatch, caplog):
        monkeypatch.setattr("airflow.sdk.bases.xcom.BaseXCom.get_one", lambda **criteria: 1 / 0)
        assert self.ask(id="id", try_number=1) is None
        assert "could not be asked" in caplog.text

    def test_the_context_of_a_dag_run_has_no_task(self):
        assert airflow_resilience.execution_context({"run_id": "run"}) is None


class PositionalOnly(NotTold):
    """Takes it in a way in which it cannot be passed by its name."""

    def on_kill(self, execution_context: ExecutionContext | None = None, /) -> None:
        super().on_kill()


class Many(NotTold):
    """Has the name for something else."""

    def on_kill(self, *execution_context: Any) -> None:
        super().on_kill()


def takes_nothing(method: Callable[..., None]) -> Callable[..., None]:
    """Decorate a method as is often done, with one that takes less."""

    @functools.wraps(method)
    def decorated(self: Any) -> None:
        method(self)

    return decorated


def takes_all(method: Callable[..., None]) -> Callable[..., None]:
    """Decorate a method with one that passes everything on."""

    @functools.wraps(method)
    def decorated(*args: Any, **kwargs: Any) -> None:
        method(*args, **kwargs)

    return decorated


class Decorated(NotTold):
    """Its decorator does not take what it takes."""

    @takes_nothing
    def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
        super().on_kill()


class DecoratedTold(Told):
    """Its decorator takes it."""

    on_kill = takes_all(Told.on_kill)


@pytest.mark.parametrize("operator", [PositionalOnly, Many, Decorated])
def test_on_kill_that_cannot_be_given_it_by_name_is_called_as_ever(run_of, operator):
    run = run_of(operator)
    assert run(terminate) is None
    assert run.task.killed == 1


def test_on_kill_with_a_decorator_that_takes_it_is_told(run_of):
    run = run_of(DecoratedTold)
    run(terminate)
    assert run.task.told == CLEARED


def test_the_timeout_of_the_code_does_not_end_what_is_done_after_it(run_of):
    """Storing may take long. Airflow's timer would have a failure without retries retried, as a timeout."""
    run = run_of()

    def store(context: ExecutionContext) -> None:
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.raise_signal(signal.SIGALRM)
        run.stored.append(context)

    run.observer._store, run.task.code = store, fail
    run.task.execution_timeout = timedelta(seconds=60)
    with pytest.raises(ValueError, match="own"), timeout(60):
        run.task.execute(context={})
    assert [context.reason for context in run.stored] == ["TASK_ERROR"]


def test_code_that_cleans_up_after_a_timeout_is_told(run_of):
    run, told = run_of(), []

    def execute() -> None:
        try:
            fail(exceptions.AirflowTaskTimeout("too long"))
        finally:
            told.append(airflow_resilience.current_termination())

    run(execute)
    assert told == run.stored
    assert (told[0].category, told[0].reason) == ("TIMEOUT", "EXECUTION_TIMEOUT")
    assert run.asked == 0


def test_code_that_cleans_up_after_its_own_error_is_told_nothing(run_of):
    run, told = run_of(), []

    def execute() -> None:
        try:
            fail()
        finally:
            told.append(airflow_resilience.current_termination())

    run(execute)
    assert told == [None]


def test_a_secret_at_the_end_of_what_is_kept_is_masked_whole(run_of, monkeypatch):
    secret = "correct-horse"
    masked = "airflow.sdk._shared.secrets_masker.redact"
    monkeypatch.setattr(masked, lambda text: text.replace(secret, "***"))
    run = run_of()
    run(lambda: fail(ValueError("x" * (MESSAGE_LIMIT - 10) + secret + "y" * 100)))
    assert secret[:5] not in run.stored[0].metadata["message"]
