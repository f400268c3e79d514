# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Results, in the formats that Airflow's own commands have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.cli.simple_table import AirflowConsole, SimpleTable
from rich.table import Table
from rich.text import Text


def print_data(data: Any, output: str) -> None:
    """
    Print a result for programs.

    :param data: JSON-serialisable, except for times
    :param output: ``json``, ``yaml``, or ``plain``: a line for each value, named by its path
    """
    console = AirflowConsole()
    data = json.loads(json.dumps(data, default=datetime.isoformat))  # YAML takes no enums and no tuples
    match output:
        case "json":
            console.print_as_json(data)
        case "yaml":
            console.print_as_yaml(data)
        case _:
            console.print_as_plain_table([{"name": name, "value": value} for name, value in _flat(data)])


def print_rows(data: Sequence[Any], rows: Sequence[dict[str, object]], output: str) -> None:
    """
    Print results that are the rows of one table.

    :param data: all that is known, for programs
    :param rows: the columns for people
    :param output: ``json``, ``yaml``, ``plain`` or ``table``
    """
    if output in ("json", "yaml"):
        print_data(data, output)
    elif output == "plain" or not rows:
        AirflowConsole().print_as_plain_table(list(rows))
    else:
        print_table(AirflowConsole(), rows)


def print_heading(console: AirflowConsole, text: str) -> None:
    """Print the title of what follows."""
    console.print(f"\n{text}", style="bold", markup=False, highlight=False)


def print_names(console: AirflowConsole, named: Iterable[tuple[str, object]]) -> None:
    """Print a line for each name that has a value."""
    grid = Table.grid(padding=(0, 2))
    for name, value in named:
        if value is not None:
            grid.add_row(f"  {name}", Text(str(value), overflow="fold"))
    if grid.row_count:
        console.print(grid)


def print_table(console: AirflowConsole, rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows with the same columns. Empty columns are left out; without rows, nothing is printed."""
    columns = [name for name in (rows[0] if rows else ()) if any(row[name] is not None for row in rows)]
    if not columns:
        return
    table = SimpleTable(*columns, show_header=True, pad_edge=True)  # type: ignore[no-untyped-call]
    for row in rows:
        table.add_row(*(Text("" if row[name] is None else str(row[name])) for name in columns))
    console.print(table)


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
