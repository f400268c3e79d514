# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's side of :mod:`benchmarks.driver`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.processes import cpu_seconds, proportional_set_size

_STOP_TIMEOUT = 60.0
_SETTLING = 5.0
_EVENTS_TIMEOUT = 60.0


class ExecutorProcess:
    """A process with an executor; made by :func:`open_executor`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._turns = False

    def call(self, command: str, **arguments: Any) -> Any:
        """
        Have a method of the driver called and return its result.

        A loop that turns is ended by it, and its result is lost.

        :raises RuntimeError: if the driver has ended, with the last lines of its output
        """
        self._send(command, arguments)
        if self._turns:
            self._receive()
            self._turns = False
        return self._receive()

    def turn(self, pause: float) -> None:
        """Turn the loop until the next call, with so many seconds between two turns."""
        self._send("run", {"pause": pause})
        self._turns = True

    def halt(self) -> Any:
        """Return what the loop that turns has done, and end it."""
        self._send("messages", {})
        self._turns = False
        result, _ = self._receive(), self._receive()
        return result

    def events(self) -> int:
        """Return how many events of pods it has taken in; of the official executor, those of running pods."""
        messages: int = self.call("messages")
        # The official one's are only seen in its log, where it writes a line for each.
        return messages if messages >= 0 else self.log_lines("is Running")

    def settle(self, events: int, pause: float) -> None:
        """
        Turn the loop for some seconds, and until the executor has taken in so many events in all.

        :param pause: seconds between two turns
        :raises RuntimeError: if they do not come: what an executor costs that watches nothing is no result
        """
        deadline = time.monotonic() + _EVENTS_TIMEOUT
        while True:
            self.call("run", pause=pause, timeout=_SETTLING)
            if (found := self.events()) >= events:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} events of {events} pods")

    def _send(self, command: str, arguments: Mapping[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
            raise RuntimeError(f"the driver ended ({self._process.wait()}):\n{tail}")
        return json.loads(line)

    def cpu_seconds(self) -> float:
        """Return the processor time of the process and its children so far."""
        return cpu_seconds(self._process.pid)

    def memory(self) -> int:
        """Return the memory of the process and its children, in bytes."""
        return proportional_set_size(self._process.pid)

    def log_lines(self, words: str) -> int:
        """Return in how many lines of the log these words are."""
        with self._log.open(errors="replace") as lines:
            return sum(words in line for line in lines)

    def end(self) -> None:
        """End the process and its children, whatever they do."""
        # Also when it has ended: its children outlive it.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=_STOP_TIMEOUT)


@contextmanager
def open_executor(environment: Mapping[str, str], job_id: int, log: Path) -> Iterator[ExecutorProcess]:
    """
    Run a driver.

    :param environment: all of its environment variables
    :param job_id: of the scheduler that its executor belongs to
    :param log: where its output goes
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.driver", str(job_id)],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            start_new_session=True,
        )
    executor = ExecutorProcess(process, log)
    try:
        yield executor
    finally:
        executor.end()
