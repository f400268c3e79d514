# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A plugin of pytest: a failure is told at once and at the end, and ``--maxfail`` ends all processes.

pytest-xdist only hands out no more tests: each other process would run those that it has, which may be all of
a module.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from threading import Timer
from typing import Any

import pytest

PATIENCE = 60.0
"""Seconds after the first failure in which others are still found, up to as many as ``--maxfail`` allows."""

STOP = signal.SIGUSR1
"""Tells a process to run no more tests."""

_STOPPED = "stopped after a failure"
_LINES = 10
"""Of each reason at the end: those of all tests are to fit on a screen."""


def pytest_configure(config: pytest.Config) -> None:
    """Tell the processes of pytest-xdist from the one that has started them."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Worker())
        return
    config.pluginmanager.register(_Reasons(config))
    if config.getoption("numprocesses", None) and (failures := config.getoption("maxfail")):
        config.pluginmanager.register(_Controller(failures))


class _Reasons:
    """Says why tests have failed: as soon as they have, and below their logs, which fill many screens."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._said: list[tuple[str, list[str]]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else report.longreprtext
        self._said.append((report.nodeid, reason.splitlines()))
        _say(self._config.pluginmanager.getplugin("terminalreporter"), *self._said[-1])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._said:
            terminalreporter.write_sep("=", "reasons")
        for nodeid, lines in self._said:
            _say(terminalreporter, nodeid, lines[:_LINES])


def _say(terminal: pytest.TerminalReporter, nodeid: str, lines: list[str]) -> None:
    terminal.write_line(f"\n{nodeid} failed:", red=True)
    for line in lines:
        terminal.write_line(f"  {line}")


class _Controller:
    """Stops all processes after so many failures, or some time after the first."""

    def __init__(self, failures: int) -> None:
        self._left = failures
        self._processes: list[int] = []
        self._timer = Timer(PATIENCE, self._stop)
        self._timer.daemon = True

    def pytest_testnodeready(self, node: Any) -> None:
        self._processes.append(node.gateway._rinfo().pid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._left -= 1
            if self._left <= 0:
                self._stop()
            elif not self._timer.ident:
                self._timer.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._timer.cancel()

    def _stop(self) -> None:
        self._timer.cancel()
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process, STOP)


class _Worker:
    """Runs no more tests after the present one when it is told to stop."""

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        def stop(*_: object) -> None:
            session.shouldfail = _STOPPED

        signal.signal(STOP, stop)
