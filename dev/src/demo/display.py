# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the demo shows in the terminal: the table while it runs, and the summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.outcome import Expectation, Summary, TaskOutcome

STATE_STYLES = {"success": "green", "failed": "bold red", "running": "cyan", "deferred": "magenta"}


PICTURE_WIDTH = 110
"""Columns of the terminal in the picture."""

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""What has fonts fetched from another site. Any font of fixed width will do."""

LINE_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""


class View:
    """
    Shows the table: live in a terminal; elsewhere a line now and then, and the table at the end.

    :param console: Where to show it.
    :param heading: The title of the table.
    """

    def __init__(self, console: Console, heading: str) -> None:
        self._console = console
        self._heading = heading
        self._live = Live(console=console, auto_refresh=False)
        self._next_line = 0.0
        self._rows: Sequence[TaskOutcome] = ()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        else:
            self._console.print(task_table(self._rows, self._heading))

    def show(self, rows: Sequence[TaskOutcome], seconds: float) -> None:
        """
        Show the present state.

        :param rows: All tasks.
        :param seconds: Since the run was triggered.
        """
        self._rows = rows
        if self._console.is_terminal:
            self._live.update(task_table(rows, self._heading), refresh=True)
        elif seconds >= self._next_line:
            self._next_line = seconds + LINE_EVERY
            self._console.print(progress_line(rows, seconds))


def task_table(rows: Sequence[TaskOutcome], heading: str) -> Table:
    """Return the table of all tasks as they are now."""
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in ("task", "fault of its first pod"):
        table.add_column(column, no_wrap=True)
    table.add_column("pods", justify="right")
    for column in ("nodes", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("try", "ran", "sec"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def progress_line(rows: Sequence[TaskOutcome], seconds: float) -> str:
    """Return one line about all tasks, for an output that is no terminal."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.state or "none"] = counts.get(row.state or "none", 0) + 1
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    lost = sum(row.lost for row in rows)
    return f"{seconds:5.0f} s  {states}; {lost} pods lost, {sum(row.launches for row in rows)} launched"


def summary_text(summary: Summary) -> Group:
    """Return the numbers at the end, and which tasks did not do what they should."""
    lines = [
        f"recovered         {summary.recovered} of {summary.lost} tasks whose pod the infrastructure took",
        f"retries consumed  {summary.retries} ({summary.own_failures} expected: a worker exits on its own)",
        f"time to relaunch  {_relaunch(summary)}",
        f"user code         ran exactly once, to its end, in {summary.ran_once} of {summary.tasks} tasks",
    ]
    result = (
        Text("every task did what it should", style="bold green")
        if summary.passed
        else Text(f"not what it should be: {', '.join(summary.unexpected)}", style="bold red")
    )
    return Group(*lines, result)


def save_picture(path: Path, *shown: RenderableType) -> None:
    """
    Draw a terminal that shows this, as SVG.

    :param path: The file to write.
    """
    terminal = Console(
        record=True, width=PICTURE_WIDTH, file=StringIO(), force_terminal=True, highlight=False
    )
    terminal.print(*shown, sep="\n")
    picture = _FONTS.sub("", terminal.export_svg(title="./breeze demo", unique_id="demo"))
    path.write_text(picture, encoding="utf-8")


def _cells(row: TaskOutcome) -> tuple[str | Text, ...]:
    fault = "none" if row.fault is None else row.fault.value
    if row.expectation is Expectation.RETRIED:
        fault += " (own)"
    nodes = " > ".join(node.removeprefix("lab-") for node in row.nodes)
    return (
        row.task_id,
        fault,
        str(row.launches),
        nodes,
        _state(row),
        str(row.try_number),
        str(row.code_runs),
        f"{row.seconds:.0f}",
    )


def _state(row: TaskOutcome) -> Text:
    state = row.state or "-"
    if not row.finished or row.as_expected:
        return Text(state, style=STATE_STYLES.get(state, ""))
    if row.working:
        state += ": killed"
    elif not row.code_runs:
        state += ": never ran"
    else:
        state += " (!)"
    return Text(state, style="bold red")


def _relaunch(summary: Summary) -> str:
    if summary.relaunch_median is None or summary.relaunch_max is None:
        return "nothing was relaunched"
    return f"{summary.relaunch_median:.1f} s median, {summary.relaunch_max:.1f} s longest"
