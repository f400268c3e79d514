# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is expected of a task, and what the demo shows: tables in the terminal, and a picture of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cluster_lab.faults.plan import Fault
from demo import BUDGET
from testbed.records import Outcome

STATE_STYLES = {"running": "cyan", "deferred": "magenta"}

PICTURE_WIDTH = 110
"""Columns of the terminal in the picture."""

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""What has fonts fetched from another site. Any font of fixed width will do."""

LINE_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What should become of a task, and what has."""

    task_id: str
    outcome: Outcome
    nodes: Sequence[str] = ()
    """The node of each pod, in the order of the launches."""
    retries: int = 0
    """How many task retries are to be consumed."""
    begun: int = 1
    """How often its code is to begin."""
    ended: int = 1
    """How often its code is to come to its end."""
    fits: bool
    """Whether its pods were lost as they are to be, and no others."""
    fault: Fault | None = None
    """That of its first pod."""
    relaunch_seconds: float | None = None
    """From the loss of that pod to its successor's arrival on a node; None if there is none."""

    @property
    def ran_as_expected(self) -> bool:
        """Whether its code has begun and ended as often as it should."""
        return (self.outcome.begun, self.outcome.ended) == (self.begun, self.ended)

    @property
    def as_expected(self) -> bool:
        """Whether it has succeeded, and has lost, cost and run what it should."""
        succeeded = self.outcome.state == "success"
        return succeeded and self.ran_as_expected and self.outcome.retries == self.retries and self.fits


def _nodes(row: Row) -> str:
    return " > ".join(node.removeprefix("lab-") for node in row.nodes)


def _fault(row: Row) -> str:
    if row.fault is None:
        return "none"
    return f"{row.fault.value} (own)" if row.retries else row.fault.value


_COLUMNS: Mapping[str, Callable[[Row], object]] = {
    "fault of its first pod": _fault,
    "nodes": _nodes,
    "pods": lambda row: row.outcome.pods,
    "try": lambda row: row.outcome.try_number,
    "infrastructure retries": lambda row: f"{row.outcome.execution_failures} of {BUDGET}",
    "retries": lambda row: f"{row.outcome.retries} of {row.outcome.max_tries}",
    "begun": lambda row: row.outcome.begun,
    "ended": lambda row: row.outcome.ended,
    "ran": lambda row: row.outcome.ended,
}
"""What tables have of a row, by the title of the column."""


class View(Live):
    """
    Shows a table: live in a terminal; elsewhere a line now and then, and the table at the end.

    :param console: Where to show it.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, auto_refresh=False)
        self._begin = time.monotonic()
        self._next_line = 0.0

    def stop(self) -> None:
        """Show the table as it is in the end."""
        super().stop()
        if not self.console.is_terminal:
            self.console.line()  # Live does so in a terminal only.

    def show(self, table: Table, line: str) -> None:
        """Show the present state, as a table and as a line."""
        self.update(table, refresh=self.console.is_terminal)
        seconds = time.monotonic() - self._begin
        if not self.console.is_terminal and seconds >= self._next_line:
            self._next_line = seconds + LINE_EVERY
            self.console.print(f"{seconds:5.0f} s  {line}")


def make_table(heading: str, rows: Sequence[Row], texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return a table of tasks: first columns with texts, then the state, then those with numbers."""
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in ("task", *texts, "state"):
        table.add_column(column, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right")
    for row in rows:
        cells = [str(_COLUMNS[column](row)) for column in (*texts, *numbers)]
        table.add_row(row.task_id, *cells[: len(texts)], _state(row), *cells[len(texts) :])
    return table


def _state(row: Row) -> Text:
    """Return the state of a task, coloured by how it has ended, if it has."""
    state = row.outcome.state or "-"
    well = "green" if row.as_expected else "bold red"
    return Text(state, style=well if row.outcome.has_ended else STATE_STYLES.get(state, ""))


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
