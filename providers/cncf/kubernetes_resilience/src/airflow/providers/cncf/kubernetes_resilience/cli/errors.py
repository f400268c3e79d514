# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Refusals and ends of commands."""

from __future__ import annotations

import configparser
import os
import signal
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TextIO

from airflow.providers.cncf.kubernetes_resilience.executors.policy_settings import OptionError
from airflow_resilience.retry_policy.document import PolicyFileError

NO_ANSWER: Final = 2
"""Exit code of a command that cannot answer; argparse has the same code for wrong options."""
INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code of an interrupted command, as shells have it. No message is printed."""


class CommandError(Exception):
    """An input of the user cannot be used. The text has the input and the reason."""


def refuse(text: str) -> int:
    """Say on stderr, in one sentence, why there is no answer. Return the exit code for that."""
    try:
        sys.stderr.write(f"{text}\n")
    except OSError:
        _discard_rest(sys.stderr)
    return NO_ANSWER


def run_command(run: Callable[[], int]) -> int:
    """
    Run a command with any input and output. Return its exit code.

    Exit code 1 is an answer of ``explain``, so no error has this code, Python's own for errors.

    .. seealso:: https://docs.python.org/3/library/signal.html#note-on-sigpipe
    """
    _prepare_streams()
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except (CommandError, OptionError, PolicyFileError, configparser.Error) as error:
        return refuse(str(error))
    except OSError as error:
        _discard_rest(sys.stdout)
        return NO_ANSWER if isinstance(error, BrokenPipeError) else refuse(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # noqa: BLE001 - a defect is no answer either
        return refuse(traceback.format_exc())


def _discard_rest(stream: TextIO) -> None:
    """Discard buffered output: Python's flush at its end would fail, and change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _prepare_streams() -> None:
    """Have a closed stream discard its output, and standard output accept any character."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until Python ends
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
