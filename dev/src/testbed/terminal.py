# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What commands that start other processes have in common: their output, and how they are interrupted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

from rich.console import Console

CONSOLE_WIDTH = 120
"""Columns of an output that is no terminal. The default of 80 would fold most lines."""


def make_console() -> Console:
    """Return a console for standard output."""
    return Console(width=None if sys.stdout.isatty() else CONSOLE_WIDTH, highlight=False)


def run_in_terminal(command: Callable[[], int]) -> int:
    """
    Run a command, and let it clean up when it is interrupted or terminated.

    :return: its exit code; 130 after Ctrl-C
    :raises SystemExit: on SIGTERM, which by itself would leave everything that the command has started
    """
    signal.signal(signal.SIGTERM, _leave)
    try:
        return command()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
