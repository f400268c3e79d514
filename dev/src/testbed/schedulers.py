# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Any number of schedulers of one deployment, which can be killed and replaced."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals

import psutil
from sqlalchemy import Engine, text

from cluster_lab.managed_process import ManagedProcess
from testbed.airflow_deployment import AirflowDeployment, Component
from testbed.waiting import wait_for

_NEWEST_JOB = text("SELECT max(id) FROM job WHERE job_type = 'SchedulerJob' AND latest_heartbeat IS NOT NULL")
_HEARTBEAT = text("SELECT latest_heartbeat FROM job WHERE id = :job_id")
_AGES = text("UPDATE job SET latest_heartbeat = now() - interval '1' day WHERE id = :job_id")
_TRANSACTIONS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE client_port = ANY(:ports) AND xact_start IS NOT NULL"
)

EXIT_TIMEOUT = 90.0
"""Seconds within which a scheduler has to have ended; executors are given 20 of them."""


@dataclass(frozen=True)
class Scheduler:
    """A scheduler that was started, and may have ended since."""

    process: ManagedProcess
    job_id: int

    def end(self, number: Signals) -> int:
        """
        Send a signal that ends it and return its exit code.

        :raises subprocess.TimeoutExpired: if it does not end
        """
        self.process.signal(number)
        return self.process.wait(EXIT_TIMEOUT)

    def resume(self) -> None:
        """Let it go on after a pause; without effect on one that runs or has ended."""
        self.process.signal(SIGCONT)

    def log(self) -> str:
        """Return everything that it has written."""
        return self.process.log_file.read_text(errors="replace")


class Schedulers:
    """The schedulers of a deployment; the deployment itself has started the first."""

    def __init__(self, deployment: AirflowDeployment, engine: Engine, home: Path) -> None:
        self._deployment = deployment
        self._engine = engine
        self._home = home
        self._all = [Scheduler(deployment.components[Component.SCHEDULER], self._newest_job())]
        self._numbers = count(2)

    @property
    def alive(self) -> list[Scheduler]:
        """Those that have not ended, the oldest first."""
        return [scheduler for scheduler in self._all if scheduler.process.running]

    def start(self, env: Mapping[str, str] | None = None) -> Scheduler:
        """
        Start one more and return it when it is in the database.

        :param env: environment variables in which it differs from the others
        """
        before = self._newest_job()
        name = f"scheduler-{next(self._numbers)}"
        process = ManagedProcess(
            name,
            Component.SCHEDULER.command,
            {**self._deployment.environment, **(env or {})},
            self._home / f"{name}.log",
        )
        process.start()

        def newer_job() -> int | None:
            assert process.running, f"{name} ended:\n{process.tail()}"
            return newest if (newest := self._newest_job()) > before else None

        try:
            job_id = wait_for(f"{name} reports to the database", newer_job, show=process.tail) or 0
        except BaseException:
            process.stop()
            raise
        self._all.append(Scheduler(process, job_id))
        return self._all[-1]

    def replace(self, number: Signals = SIGKILL, env: Mapping[str, str] | None = None) -> Scheduler:
        """End all that run with a signal, let them count as dead, and start a new one."""
        for scheduler in self.alive:
            scheduler.end(number)
            self.count_as_dead(scheduler)
        return self.start(env)

    def pause(self, scheduler: Scheduler) -> None:
        """
        Stop a scheduler (SIGSTOP) while it is in no transaction.

        The locks of one would keep the others from their work, and from taking it for dead.
        """
        assert scheduler.process.pid is not None
        process = psutil.Process(scheduler.process.pid)

        def stopped() -> bool:
            scheduler.process.signal(SIGSTOP)
            wait_for("it has stopped", lambda: process.status() == psutil.STATUS_STOPPED, show=process.status)
            if self._is_in_transaction(process):
                scheduler.resume()
                return False
            return True

        wait_for(f"scheduler job {scheduler.job_id} is stopped between two transactions", stopped)

    def kill_long_ago(self, scheduler: Scheduler) -> None:
        """Kill a scheduler with all that it has forked, as the end of a container does; it counts as dead."""
        children = psutil.Process(scheduler.process.pid).children(recursive=True)
        scheduler.end(SIGKILL)
        self.count_as_dead(scheduler)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def retire(self) -> None:
        """Kill all of them with their children, let them count as dead, and forget what they have written."""
        for scheduler in self.alive:
            self.kill_long_ago(scheduler)
        self._all.clear()

    def count_as_dead(self, scheduler: Scheduler) -> None:
        """Date the last heartbeat of a scheduler back that sends no more: nobody waits until it is old."""
        with self._engine.begin() as connection:
            connection.execute(_AGES, {"job_id": scheduler.job_id})

    def wait_for_turns(self, turns: int, *, may_end: bool = False) -> None:
        """
        Wait until the oldest scheduler has turned its loop so often: it is to send a heartbeat each second.

        :param may_end: whether it may end instead
        """
        oldest = self.alive[0]
        beats: set[object] = set()

        def enough() -> bool:
            if not oldest.process.running:
                assert may_end, f"scheduler job {oldest.job_id} has ended"
                return True
            with self._engine.connect() as connection:
                beats.add(connection.execute(_HEARTBEAT, {"job_id": oldest.job_id}).scalar())
            return len(beats) > turns

        wait_for(f"scheduler job {oldest.job_id} has sent {turns} heartbeats", enough, show=lambda: beats)

    def stop(self) -> None:
        """Stop all of them."""
        for scheduler in self._all:
            scheduler.process.stop()

    def log(self) -> str:
        """Return what they have written, one after the other."""
        return "".join(scheduler.log() for scheduler in self._all)

    def _is_in_transaction(self, process: psutil.Process) -> bool:
        ports = [connection.laddr.port for connection in process.net_connections("tcp")]
        with self._engine.connect() as connection:
            transactions: int = connection.execute(_TRANSACTIONS, {"ports": ports}).scalar_one()
        return transactions > 0

    def _newest_job(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(_NEWEST_JOB).scalar() or 0)
