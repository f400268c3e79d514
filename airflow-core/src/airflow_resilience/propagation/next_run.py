# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The line in a task's log about the reason of this run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from airflow_resilience.context import MetadataKey
from airflow_resilience.propagation.reading import read_previous_run
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.termination.wrapping import wrap_methods

LENGTH = 500
"""Characters of the line, at most."""

log = logging.getLogger(__name__)


def announce(ti: Any) -> None:
    """
    Begin the log of a task that runs again with a line about the reason.

    The line is written when the operator's code is about to run. From Airflow 3.2 on, earlier lines are in a
    group ("Pre Execute"), which the page folds.

    :param ti: the task instance, in the worker that is about to run it
    """
    if previous := read_previous_run(ti):
        line = describe(previous)

        def run(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            log.info("%s", line)
            return method(*args, **kwargs)

        wrap_methods(ti.task, run)


def describe(previous: StoredContext) -> str:
    """Say in one line why there is another run of a task, without the text of a container."""
    context, metadata = previous.context, previous.context.metadata
    pod, node = metadata.get(MetadataKey.POD), metadata.get(MetadataKey.NODE)
    launch = metadata.get(MetadataKey.LAUNCH)
    known = (MetadataKey.CAUSE, MetadataKey.EXCEPTION, MetadataKey.STATE)
    why = next((str(metadata[key]) for key in known if metadata.get(key)), "")
    words = [
        f"Try {previous.try_number}",
        "is launched again:" if previous.explanation else "follows a failure:",
        f"launch {launch}" if launch else "",
        f"in pod {pod}" if pod else "",
        f"on node {node}" if node else "",
        f"ended by {why}" if why else "ended",
        f"({context.category} / {context.reason})",
    ]
    line = " ".join(filter(None, words)) + (f"; {previous.explanation}" if previous.explanation else "")
    return _inert(line)


def _inert(text: str) -> str:
    """Return a text as one line of bounded length that cannot begin a group of the log page."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    # A line with "::group::" anywhere begins a group.
    return " ".join(plain.replace("::", ": :").split())[:LENGTH]
