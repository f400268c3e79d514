# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An exit that a hook asks for, and one that a signal asks for while a hook runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_resilience.exits import contained


class Scheduler:
    """As Airflow's handles the signals that end it."""

    def _exit_gracefully(self, signum: int, frame: Any) -> None:
        sys.exit(os.EX_OK)


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def kill(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Give a function that sends this process a signal, whose handler exits."""
    before = signal.signal(request.param, Scheduler()._exit_gracefully)
    yield lambda: os.kill(os.getpid(), request.param)
    signal.signal(request.param, before)


@pytest.mark.parametrize("code", [None, 0, 3, "no"], ids=str)
def test_an_exit_is_a_failure_of_what_asks_for_it(code: object) -> None:
    with pytest.raises(RuntimeError, match=f"SystemExit: {code}") as caught, contained():
        sys.exit(code)  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, SystemExit)


def test_so_it_is_where_a_handler_is_only_there(kill: Callable[[], None]) -> None:
    with pytest.raises(RuntimeError), contained():
        sys.exit(0)


def test_the_exit_that_a_signal_asks_for_goes_on(kill: Callable[[], None]) -> None:
    with pytest.raises(SystemExit), contained():
        kill()


def test_so_it_does_if_the_code_tidies_up_and_exits_by_itself(kill: Callable[[], None]) -> None:
    def hook() -> None:
        try:
            kill()
        finally:
            sys.exit(5)

    with pytest.raises(SystemExit), contained():
        hook()


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_else_is_raised_goes_on(error: type[BaseException]) -> None:
    with pytest.raises(error), contained():
        raise error
