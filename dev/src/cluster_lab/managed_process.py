# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A process that we start, whose output goes to a file, and of which nothing is left when it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

STOP_TIMEOUT = 15.0
COMMAND_TIMEOUT = 120.0
LINES = 30
"""Of output in a message."""


class ProcessError(RuntimeError):
    """A process did not do what it should; the message ends with the last lines of its output."""


class Service(ABC):
    """What is started on entering a ``with`` block, and stopped at its end or if it does not come up."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _start(self) -> None:
        """Start it, and wait until it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it; without effect on what does not run."""


def inherited_environment() -> dict[str, str]:
    """
    Return this process's environment without what would change the ones that we start.

    ``AIRFLOW*`` is about another Airflow. Without bytecode files half of the time that a component takes to
    start would go into compiling Airflow.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def run_to_end(
    command: Sequence[str], env: Mapping[str, str], timeout: float = COMMAND_TIMEOUT, **options: Any
) -> subprocess.CompletedProcess[str]:
    """
    Run a program and return what it has written, whatever its exit code.

    :param env: Its whole environment.
    :param timeout: Seconds.
    :param options: Of :class:`subprocess.Popen`.
    :raises subprocess.TimeoutExpired: If it does not end.
    """
    return subprocess.run(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )


def run_well(command: Sequence[str], env: Mapping[str, str], **options: Any) -> str:
    """
    Run a program as :func:`run_to_end` does, and return its standard output.

    :raises ProcessError: If it fails.
    """
    done = run_to_end(command, env, **options)
    if done.returncode != 0:
        raise ProcessError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def last_lines(file: Path, lines: int) -> str:
    """Return the last lines of a log."""
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


class ManagedProcess:
    """
    One process and the children it makes, which share its process group.

    It can be started again after it has ended, with the same command; the output is appended.

    :param name: What to call it in messages.
    :param command: The command line.
    :param env: Its whole environment.
    :param log_file: Where standard output and standard error go.
    :param options: Of :class:`subprocess.Popen`; without one, it reads nothing on its standard input.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        log_file: Path,
        **options: Any,
    ) -> None:
        self.name = name
        self.log_file = log_file
        self._command = list(command)
        self._env = dict(env)
        self._options: dict[str, Any] = {"stdin": subprocess.DEVNULL} | options
        self._process: subprocess.Popen[Any] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, None if it has never been started or was stopped."""
        return None if self._process is None else self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended (negative: by that signal), None while it runs and when it was never started."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """
        Start it in a process group of its own.

        :raises RuntimeError: If it is running.
        """
        if self.running:
            raise RuntimeError(f"{self.name} is running already (pid {self.pid})")
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: Ctrl-C must reach only us, so that what we stop, we stop in order.
                start_new_session=True,
                **self._options,
            )

    def wait_until(self, what: str, reached: Callable[[], bool], timeout: float) -> None:
        """
        Wait for a state of the process.

        :param what: What is waited for, for the message of a failure.
        :param timeout: In seconds.
        :raises ProcessError: If the process ends, or has not reached the state then.
        """
        deadline = time.monotonic() + timeout
        while not reached():
            if not self.running:
                raise ProcessError(f"{self.name} ended ({self.returncode}):\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"{self.name}: waited {timeout:.0f} s in vain until {what}:\n{self.tail()}"
                )
            time.sleep(0.1)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process itself, not to its children; without effect if it has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        """
        Wait for its end.

        :param timeout: In seconds.
        :raises subprocess.TimeoutExpired: If it still runs then.
        """
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process.wait(timeout)

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ask it to end (SIGTERM) and, after ``timeout`` seconds, end it with all its children (SIGKILL)."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        # Also after an orderly end: a child that outlived its parent would stay for ever.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        self._process = None

    def tail(self) -> str:
        """Return the last lines of its output."""
        return last_lines(self.log_file, LINES) if self.log_file.exists() else ""
