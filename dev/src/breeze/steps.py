# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Running programs and checks, and telling at the end how each went."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from breeze.paths import ROOT
from testbed.terminal import make_console

console = make_console()


class Step(NamedTuple):
    """Something that can fail, under the name that the summary gives it."""

    name: str
    run: Callable[[], int]
    """Does the work and returns an exit code; 0 is success."""


def run_program(
    arguments: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    in_one_piece: bool = False,
    check: bool = False,
) -> int:
    """Run a program with its output on our own; nothing started here may wait for a keyboard.

    :param env: variables to set besides those of this process.
    :param in_one_piece: show its output once it has ended, since another program runs beside it.
    :param check: raise an error if it fails.
    :returns: its exit code.
    :raises CalledProcessError: see ``check``.
    """
    words = [str(argument) for argument in arguments]
    console.print(f"[dim]$ {escape(shlex.join(words))}[/]", soft_wrap=True)
    result = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if in_one_piece else None,
        stderr=subprocess.STDOUT if in_one_piece else None,
        text=True,
        errors="replace",
        check=check,
    )
    if in_one_piece:
        console.print(f"[dim]{escape(shlex.join(words))}:[/]\n{escape(result.stdout)}", soft_wrap=True)
    return result.returncode


def run_tool(module: str, *arguments: object, **options: Any) -> int:
    """Run a Python tool of our own environment, as ``python -m <module>``: see :func:`run_program`."""
    return run_program([sys.executable, "-m", module, *arguments], **options)


def run_steps(
    title: str,
    steps: Sequence[Step],
    *,
    at_once: int = 1,
    keep_going: bool = True,
    report: Path | None = None,
) -> int:
    """Run steps and print a table of them all.

    :param at_once: how many steps run at the same time.
    :param keep_going: run the steps behind a failed one too.
    :param report: a table in Markdown, to which each step adds a row when it has ended.
    :returns: 0 if each succeeded, otherwise 1.
    """
    failed = Event()

    def run(step: Step) -> tuple[str, str, str]:
        if failed.is_set() and not keep_going:
            return step.name, "[dim]not run[/]", ""
        console.rule(f"[bold]{step.name}[/]", align="left")
        start = time.monotonic()
        code = _exit_code(step)
        if code:
            failed.set()
        row = (step.name, f"FAILED ({code})" if code else "passed", f"{time.monotonic() - start:.1f}")
        if report:
            with report.open("a") as file:
                file.write(f"| {' | '.join(row)} |\n")
        return row[0], f"[{'red' if code else 'green'}]{row[1]}[/]", row[2]

    with ThreadPoolExecutor(at_once) as pool:
        rows = list(map(run, steps) if at_once == 1 else pool.map(run, steps))
    table = Table("step", "result", "seconds", title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return int(failed.is_set())


def _exit_code(step: Step) -> int:
    try:
        return step.run()
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        console.print(error, markup=False)
        return 1
