# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Prints results in the formats of Airflow's own commands.

Airflow's console would import all of Airflow, and commands without Airflow print in the same formats.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import yaml
from rich.box import ASCII_DOUBLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_OF_A_FILE: Final = 200
"""Columns of output that is not for a terminal."""


class _Console(Console):
    """Leaves a closed pipe to :func:`.errors.run_command`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console() -> Console:
    """Return a console for standard output."""
    return _Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)


def print_text(text: str) -> None:
    """Print a text without breaking lines."""
    sys.stdout.write(f"{text}\n")


def print_data(data: Any, output: str) -> None:
    """
    Print a result for programs.

    :param data: JSON-serialisable, except for times
    :param output: ``json``, ``yaml``, or ``plain``: a line for each value, named by its path
    """
    data = json.loads(json.dumps(data, default=datetime.isoformat))  # YAML takes no enums and no tuples
    match output:
        case "json":
            _print_code(json.dumps(data), "json")
        case "yaml":
            _print_code(yaml.safe_dump(data), "yaml")
        case _:
            _print_plain([{"name": name, "value": value} for name, value in _flat(data)])


def print_rows(data: Sequence[Any], rows: Sequence[dict[str, object]], output: str) -> None:
    """
    Print results that are the rows of one table.

    :param data: all facts, for programs
    :param rows: the columns for people
    :param output: ``json``, ``yaml``, ``plain`` or ``table``
    """
    if output in ("json", "yaml"):
        print_data(data, output)
    elif output == "plain" or not rows:
        _print_plain(rows)
    else:
        print_table(make_console(), rows)


def print_heading(console: Console, text: str) -> None:
    """Print a title."""
    console.print(f"\n{text}", style="bold", markup=False, highlight=False)


def print_names(console: Console, named: Iterable[tuple[str, object]]) -> None:
    """Print a line for each name that has a value. A value of one word, such as a URL, is not broken."""
    known = [(name, str(value)) for name, value in named if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        label = f"  {name:<{width}}"
        if len(value.split()) == 1:
            console.print(Text(f"{label}  {value}"), soft_wrap=True)
        else:
            grid = Table.grid(padding=(0, 2))
            grid.add_row(Text(label), Text(value, overflow="fold"))
            console.print(grid)


def print_table(console: Console, rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows with the same columns. Empty columns are omitted; without rows, nothing is printed."""
    columns = [name for name in (rows[0] if rows else ()) if any(row[name] is not None for row in rows)]
    if not columns:
        return
    table = Table(*columns, box=ASCII_DOUBLE_HEAD, show_edge=False, caption=" ")
    for row in rows:
        cells = ("" if row[name] is None else str(row[name]) for name in columns)
        table.add_row(*(Text(cell, overflow="fold") for cell in cells))
    console.print(table)


def _print_code(text: str, language: str) -> None:
    from rich.syntax import Syntax  # noqa: PLC0415 - a tenth of the time of a command that needs none

    make_console().print(Syntax(text, language, theme="ansi_dark"), soft_wrap=True)


def _print_plain(rows: Sequence[Mapping[str, object]]) -> None:
    from tabulate import tabulate  # noqa: PLC0415 - as above

    if rows:
        print_text(tabulate([row.values() for row in rows], tablefmt="plain", headers=list(rows[0])))
    else:
        print_text("No data found")


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    items: Any
    if isinstance(value, dict):
        items = ((f"{path}.{key}" if path else key, item) for key, item in value.items())
    elif isinstance(value, list):
        items = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    else:
        yield path, value
        return
    for inner_path, item in items:
        yield from _flat(item, inner_path)
