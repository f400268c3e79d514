# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Exits that the code of a deployment asks for where it is called: hooks, listeners, clients of metrics."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb


@contextmanager
def contained() -> Iterator[None]:
    """
    Make an exit a failure of the code that asks for it. The process goes on.

    A signal may arrive while that code runs. The exit that the signal's handler asks for ends the process:
    Airflow's scheduler ends so.

    :raises RuntimeError: instead of ``SystemExit``
    """
    try:
        yield
    except SystemExit as error:
        if _is_of_signal(error):
            raise
        raise RuntimeError(f"SystemExit: {error.code}") from error


def _is_of_signal(error: BaseException | None) -> bool:
    """Whether an exception, or one before it, was raised while a handler of a signal ran."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    while error:
        if any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__)):
            return True
        error = error.__context__
    return False
