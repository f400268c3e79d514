# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A candidate's executor that notes when each turn of the scheduler's loop was in it, and for how long."""

from __future__ import annotations

import json
import os
import time
from importlib import import_module
from typing import Any

# Of lines: what a turn brings about may be seen before it ends.
_NOTES = open(os.environ.get("BENCHMARK_NOTES", os.devnull), "a", buffering=1)  # noqa: PTH123, SIM115
# Only that of the candidate: what the other one imports is no part of its memory.
_CANDIDATE: Any = import_module(os.environ["BENCHMARK_EXECUTOR"])


class ObservedExecutor(_CANDIDATE.KubernetesExecutor):  # type: ignore[misc]
    """Writes its notes to the file ``BENCHMARK_NOTES``, as lines of JSON."""

    def note(self, what: str, value: float = 0) -> None:
        """
        Note something that has happened by now.

        :param value: a number that goes with it
        """
        _NOTES.write(json.dumps({"at": time.time(), "what": what, "value": value}) + "\n")

    def heartbeat(self) -> None:
        """Do what the executor does, and note when it has been given something to launch."""
        if self.queued_tasks:
            self.note("work")
        super().heartbeat()

    def sync(self) -> None:
        """Do what the executor does, and note how long that took, in seconds."""
        began = time.perf_counter()
        super().sync()
        self.note("turn", time.perf_counter() - began)
