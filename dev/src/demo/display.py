# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the demo shows in the terminal: a table while it runs, and a picture of all of them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

STATE_STYLES = {"running": "cyan", "deferred": "magenta"}

PICTURE_WIDTH = 110
"""Columns of the terminal in the picture."""

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""What has fonts fetched from another site. Any font of fixed width will do."""

LINE_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""


class View:
    """
    Shows a table: live in a terminal; elsewhere a line now and then, and the table at the end.

    :param console: Where to show it.
    :param heading: The title of the table.
    """

    def __init__(self, console: Console, heading: str) -> None:
        self.heading = heading
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._begin = time.monotonic()
        self._next_line = 0.0
        self._table: RenderableType = ""

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
            self._console.print(self._table)

    def show(self, table: Table, line: str) -> None:
        """Show the present state, as a table and as a line."""
        self._table = table
        seconds = time.monotonic() - self._begin
        if self._console.is_terminal:
            self._live.update(table, refresh=True)
        elif seconds >= self._next_line:
            self._next_line = seconds + LINE_EVERY
            self._console.print(f"{seconds:5.0f} s  {line}")


def make_table(heading: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return a table without rows: first columns with texts, then those with numbers."""
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in texts:
        table.add_column(column, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def state_of(state: str | None, *, is_well: bool | None) -> Text:
    """
    Return the state of a task, coloured.

    :param is_well: whether the task has ended as it should; None: it has not ended
    """
    style = {True: "green", False: "bold red", None: STATE_STYLES.get(state or "", "")}[is_well]
    return Text(state or "-", style=style)


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
