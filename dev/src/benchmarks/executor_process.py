# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's side of :mod:`benchmarks.driver`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.processes import cpu_seconds, proportional_set_size

_STOP_TIMEOUT = 60.0


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
