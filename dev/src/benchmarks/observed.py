# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""When each turn of the scheduler's loop was in the executor, and for how long; it does nothing else."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.candidates import TURNS_VARIABLE
from benchmarks.turns import Moment


class Observed:
    """Goes before the class of an executor."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.turns: list[tuple[float, float]] = []
        """When ``sync()`` began and ended, in seconds since the epoch; only if they do not go to a file."""
        path = os.environ.get(TURNS_VARIABLE)
        self._file = open(path, "a", buffering=1) if path else None  # noqa: PTH123, SIM115 - for a lifetime

    def heartbeat(self) -> None:
        """Do what the executor does, and note when it has been given something to launch."""
        if self.queued_tasks:  # type: ignore[attr-defined]
            self._note(Moment.WORK)
        super().heartbeat()  # type: ignore[misc]

    def sync(self) -> None:
        """Do what the executor does, and note when."""
        begin = self._note(Moment.BEGIN)
        super().sync()  # type: ignore[misc]
        end = self._note(Moment.END)
        if self._file is None:
            self.turns.append((begin, end))

    def _note(self, moment: Moment) -> float:
        now = time.time()
        if self._file:
            # At once: what a turn brings about may be seen before it ends.
            self._file.write(f"{moment} {now:.6f}\n")
        return now
