# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A real scheduler whose executor is observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.candidates import TURNS_VARIABLE
from benchmarks.turns import Turns, parse_turns
from cluster_lab.managed_process import ManagedProcess
from testbed.airflow_deployment import Component
from testbed.waiting import wait_for

_TURNS_UNTIL_IDLE = 3


class SchedulerProcess:
    """A scheduler that runs; made by :func:`open_scheduler`."""

    def __init__(self, process: ManagedProcess, turns: Path) -> None:
        self._process = process
        self._turns = turns

    @property
    def pid(self) -> int:
        """
        The process id.

        :raises RuntimeError: if it has ended
        """
        if not self._process.running or self._process.pid is None:
            raise RuntimeError(f"the scheduler has ended:\n{self._process.tail()}")
        return self._process.pid

    def turns(self) -> Turns:
        """Return when its loop was in the executor so far."""
        return parse_turns(self._turns.read_text() if self._turns.exists() else "")

    def wait_until_idle(self) -> None:
        """Wait until it turns its loop."""
        known = len(self.turns().end)
        wait_for(
            "the scheduler turns its loop",
            lambda: self.pid and len(self.turns().end) >= known + _TURNS_UNTIL_IDLE,
            show=self._process.tail,
        )


@contextmanager
def open_scheduler(environment: Mapping[str, str], home: Path) -> Iterator[SchedulerProcess]:
    """
    Run a scheduler, and stop it in the end.

    :param environment: all of its environment variables but the one for its turns
    :param home: an empty folder
    """
    turns = home / "turns"
    process = ManagedProcess(
        "scheduler",
        Component.SCHEDULER.command,
        {**environment, TURNS_VARIABLE: str(turns)},
        home / "scheduler.log",
    )
    process.start()
    try:
        scheduler = SchedulerProcess(process, turns)
        scheduler.wait_until_idle()
        yield scheduler
    finally:
        process.stop(timeout=0)
