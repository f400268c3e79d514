# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The worker container as a process of this machine, in a process group of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

_MARK = "CLUSTER_LAB_CONTAINER"


class WorkerProcess:
    """A running process; it and its children end together, as the processes of a container do."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._end = asyncio.create_task(self._until_end())

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, env: Mapping[str, str], directory: Path, log: Path
    ) -> WorkerProcess:
        """
        Start a process whose output goes to a log file.

        :param env: its whole environment; the program is looked up in the ``PATH`` of it
        """
        mark = uuid.uuid4().hex
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env={**env, _MARK: mark},
                cwd=directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(process, mark)

    async def wait(self) -> int:
        """Wait for the end and return the exit code in the way of containers: 128 + n for signal n."""
        return await asyncio.shield(self._end)

    async def stop(self, grace: float, hurry: asyncio.Event) -> int:
        """
        Ask the process to end; kill it when its time is up.

        :param grace: seconds
        :param hurry: ends the grace period early
        :return: the exit code
        """
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
        hurried = asyncio.create_task(hurry.wait())
        try:
            await asyncio.wait({self._end, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        self.kill()
        return await self.wait()

    def kill(self) -> None:
        """Kill the process at once; does nothing if it has ended."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)

    def suspend(self) -> None:
        """Let the process stand still, for good: a stop is the last that it hears, but for a kill."""
        self._signal(signal.SIGSTOP)
        self._signal_escaped(signal.SIGSTOP)

    async def _until_end(self) -> int:
        code = await self._process.wait()
        # When the first process of a container ends, the kernel kills the rest.
        self._signal(signal.SIGKILL)
        self._signal_escaped(signal.SIGKILL)
        return code if code >= 0 else 128 - code

    def _signal_escaped(self, number: signal.Signals) -> None:
        """
        Send a signal to what has left the process group.

        It is still in the session, as Airflow's task process is, or it still has the environment. One alone
        does not do: a process can leave the session, and one that sets its title overwrites what the kernel
        shows as its environment.
        """
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                in_session = os.getsid(process.pid) == self._process.pid
                if in_session or process.environ().get(_MARK) == self._mark:
                    process.send_signal(number)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
