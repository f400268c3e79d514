# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The run itself: new DAG runs all the time, a look at everything every few seconds, and rest in the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import httpx
import psutil
from rich.console import Console

from cluster_lab.journal import JournalEvent
from soak.growth import Sample
from soak.measurement import MEMORY, measure, read_holdings
from soak.outcome import Evidence, Outcome, losses_at_work, sort_out, worst_series
from soak.settings import BUDGET, FEW, MANY, REAL_EVERY, RUN_EVERY
from testbed.code_journal import release_file
from testbed.testbed import Testbed
from testbed.waiting import wait_for

TICK = 1.0
TRIGGER_ATTEMPTS = 4
SAMPLE_EVERY = 3.0
LINE_EVERY = 30.0

ENDING = 420.0
"""Seconds in which all tasks end when no new ones come and nothing is disturbed any more."""

RESTING = 330.0
"""Seconds in which nothing is left to do then; a superseded pod may be waited for for 300."""


@dataclass
class Soak:
    """
    One run.

    :param seconds: for how long new DAG runs are started
    """

    testbed: Testbed
    console: Console
    seconds: float
    samples: list[Sample] = field(default_factory=list)
    """What the measured scheduler's process needed."""
    runs: list[tuple[str, str]] = field(default_factory=list)
    """The DAG runs that have been asked for, by DAG and id."""
    busy: list[float] = field(default_factory=list)
    """How much of this machine's processors was in use, in percent, between two lines of progress."""

    def __post_init__(self) -> None:
        self._scheduler = self.testbed.schedulers.alive[0]
        self._began = time.monotonic()
        self._next_sample = 0.0
        self._next_line = 0.0

    # ------------------------------------------------------------------ what is done

    def prepare(self) -> None:
        """Wait until the scheduler works, and measure it before it has anything to do."""
        for dag_id in (MANY, FEW):
            self.testbed.deployment.wait_for_dag(dag_id)
        (self.testbed.home / FEW).mkdir()
        release_file(self.testbed.home / FEW).touch()
        wait_for("the executor writes what it holds", self.holdings)
        self._sample()
        psutil.cpu_percent()

    def work(self) -> None:
        """Start DAG runs for as long as the run lasts."""
        self._began = time.monotonic()
        for number in count(1):
            if self._until(self._began + number * RUN_EVERY):
                return
            self._trigger(MANY, number)
            if number % REAL_EVERY == 1:
                self._trigger(FEW, number)

    def come_to_rest(self) -> None:
        """Wait until all tasks have ended and nothing is left of them, or for so long that it is a fault."""
        self._wait(ENDING, lambda: all(task.ended for task in self.testbed.records.task_instances()))
        self._wait(RESTING, lambda: self._is_idle() and not self.testbed.cluster.names())
        self._sample()

    def _until(self, moment: float) -> bool:
        """Look at everything until it is time; return whether the whole run is over before."""
        end = self._began + self.seconds
        while (now := time.monotonic()) < min(moment, end):
            self._look()
            time.sleep(min(TICK, max(0.0, moment - now)))
        return now >= end

    def _wait(self, timeout: float, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout
        while not condition() and time.monotonic() < deadline:
            self._look()
            time.sleep(TICK)

    def _trigger(self, dag_id: str, number: int) -> None:
        # After an outage everything that has waited starts at once, and Airflow's API server answers late.
        for attempt in count(1):
            try:
                run_id = self.testbed.api.trigger(dag_id, f"run-{number:04}")
            except httpx.TimeoutException:
                if attempt == TRIGGER_ATTEMPTS:
                    raise
            else:
                self.runs.append((dag_id, run_id))
                return

    # ------------------------------------------------------------------ what is seen

    def holdings(self) -> list[Sample]:
        """Return what the measured executor has written about itself so far."""
        assert self._pid is not None
        return read_holdings(self.testbed.home, self._pid)

    def outcome(self, cleared: Counter[tuple[str, str, str, int]]) -> Outcome:
        """
        Return what has become of everything.

        :param cleared: how often each task instance was cleared while it ran
        """
        records = self.testbed.records
        journal, states = records.journal(), records.run_states()
        evidence = Evidence(worst_series(journal), records.code(), cleared, losses_at_work(journal))
        return Outcome(
            results=sort_out(records.task_instances(), evidence, BUDGET),
            runs={run: states.get(run) for run in self.runs},
            launches=sum(entry.event is JournalEvent.BOUND for entry in journal),
            faults=Counter(
                str(entry.fault) for entry in journal if entry.event is JournalEvent.FAULT_INJECTED
            ),
            pods_left=self.testbed.cluster.names(),
        )

    @property
    def _pid(self) -> int | None:
        process = self._scheduler.process
        assert process.running, f"the scheduler has ended ({process.returncode}):\n{process.tail()}"
        return process.pid

    def _is_idle(self) -> bool:
        first, *_, last = self.holdings()
        return all(size <= first.values.get(name, 0) for name, size in last.values.items())

    def _look(self) -> None:
        now = time.monotonic()
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_EVERY
            self._sample()
        if now >= self._next_line:
            self._next_line = now + LINE_EVERY
            self.console.print(self._line(now - self._began))

    def _sample(self) -> None:
        assert self._pid is not None
        self.samples.append(measure(self._pid))

    def _line(self, seconds: float) -> str:
        self.busy.append(psutil.cpu_percent())
        states = Counter(task.state or "waiting" for task in self.testbed.records.task_instances())
        faults = sum(entry.event is JournalEvent.FAULT_INJECTED for entry in self.testbed.records.journal())
        memory = self.samples[-1].values[MEMORY]
        counts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        return (
            f"{seconds:5.0f} s  {len(self.runs)} runs; {counts}; {faults} pods lost;"
            f" scheduler {memory:.0f} MB; processors {self.busy[-1]:.0f} %"
        )
