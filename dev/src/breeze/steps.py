# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Running programs and checks, and telling at the end how each went."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from breeze.paths import BUILD, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

#: A log file has no width of its own; the default of 80 columns would fold most lines.
console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)


#: Nothing that we start may read or write the contributor's own ~/airflow.
_ENVIRONMENT = {"AIRFLOW_HOME": str(BUILD / "airflow-home" / "default")}


class Step(NamedTuple):
    """Something that can fail, under the name that the summary gives it."""

    name: str
    run: Callable[[], int]
    """Does the work and returns an exit code; 0 is success."""


class Outcome(NamedTuple):
    """How a step went."""

    name: str
    exit_code: int | None
    """None: not run, since another step had failed."""
    seconds: float = 0.0

    @property
    def result(self) -> str:
        """In a word."""
        match self.exit_code:
            case None:
                return "not run"
            case 0:
                return "passed"
            case code:
                return f"FAILED ({code})"


def run_program(
    arguments: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    in_one_piece: bool = False,
) -> int:
    """Run a program with its output on our own; nothing started here may wait for a keyboard.

    :param arguments: the program and its arguments.
    :param env: variables to set besides those of this process.
    :param cwd: where to run it.
    :param in_one_piece: show its output once it has ended, since another program runs beside it.
    :returns: its exit code.
    """
    words = [str(argument) for argument in arguments]
    command = f"[dim]$ {escape(shlex.join(words))}[/]"
    if not in_one_piece:
        console.print(command, soft_wrap=True)
    result = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **_ENVIRONMENT, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if in_one_piece else None,
        stderr=subprocess.STDOUT if in_one_piece else None,
        text=True,
        errors="replace",
        check=False,
    )
    if in_one_piece:
        console.print(f"{command}\n{escape(result.stdout)}", soft_wrap=True)
    return result.returncode


def run_tool(module: str, *arguments: str | Path, env: Mapping[str, str] | None = None) -> int:
    """Run a Python tool of our own environment, as ``python -m <module>``."""
    return run_program([sys.executable, "-m", module, *arguments], env=env)


def run_steps(title: str, steps: Sequence[Step], *, at_once: int = 1, keep_going: bool = True) -> int:
    """Run steps and print a table of them all.

    :param at_once: how many steps run at the same time.
    :param keep_going: run the steps behind a failed one too.
    :returns: 0 if each succeeded, otherwise 1.
    """
    failed = Event()

    def run(step: Step) -> Outcome:
        if failed.is_set() and not keep_going:
            return Outcome(step.name, None)
        console.rule(f"[bold]{step.name}[/]", align="left")
        outcome = timed(step)
        if outcome.exit_code:
            failed.set()
        return outcome

    if at_once == 1:
        outcomes = [run(step) for step in steps]
    else:
        with ThreadPoolExecutor(at_once) as pool:
            outcomes = list(pool.map(run, steps))
    table = Table(title=title, title_justify="left")
    table.add_column("step")
    table.add_column("result")
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        style = {None: "dim", 0: "green"}.get(outcome.exit_code, "red")
        table.add_row(outcome.name, f"[{style}]{outcome.result}[/]", f"{outcome.seconds:.1f}")
    console.print(table)
    return int(failed.is_set())


def timed(step: Step) -> Outcome:
    """Run a step and return how it went."""
    start = time.monotonic()
    exit_code = step.run()
    return Outcome(step.name, exit_code, time.monotonic() - start)
