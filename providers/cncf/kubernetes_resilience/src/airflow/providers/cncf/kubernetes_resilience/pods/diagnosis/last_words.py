# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The kept parts of messages of Kubernetes and of containers.

A message of Kubernetes says at its beginning what is wrong. The message of a container that ended by itself
is what its program wrote into its termination log, or the end of its log; that says it at the end.

.. seealso:: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from __future__ import annotations

import json

from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerFacts, ContainerState

MESSAGE_LIMIT = 500
"""Characters of a message that are kept. Some runtimes put a whole stack trace into it."""

LOG_LIMIT = 2048
"""Bytes of a program's own message that are kept: as many as the kubelet takes of a log."""

_CUT = "…"

_OF_PROGRAMS = frozenset({"Error", "Completed", "OOMKilled", None})
"""Reasons of terminated containers whose message is the program's. With others it is the runtime's."""

_FRAME = '  File "'
"""A line of a traceback. Without one, what looks like an exception may be anything."""

_DECODER = json.JSONDecoder(strict=False)


def cut(message: str | None) -> str | None:
    """Cut a message after :data:`MESSAGE_LIMIT` characters."""
    if message is None or len(message) <= MESSAGE_LIMIT:
        return message
    return message[:MESSAGE_LIMIT] + _CUT


def keep(container: ContainerFacts) -> str | None:
    """Return what is kept of a container's message: the end of a program's, the beginning of others."""
    if not _is_programs(container):
        return cut(container.message)
    return _end(container.message or "", LOG_LIMIT) or None


def summarise(container: ContainerFacts) -> str | None:
    """Return what a line of the log has room for: a program's last exception, else its last words."""
    message = container.message or ""
    if not _is_programs(container):
        return cut(container.message)
    if exception := _in_json(message) or _in_text(message):
        return cut(exception)
    return _end(message.strip(), MESSAGE_LIMIT) or None


def _is_programs(container: ContainerFacts) -> bool:
    return container.state is ContainerState.TERMINATED and container.reason in _OF_PROGRAMS


def _end(text: str, limit: int) -> str:
    encoded = text.encode(errors="replace")
    # A character that is cut in two is omitted.
    if len(encoded) <= limit:
        return text
    return _CUT + encoded[len(_CUT.encode()) - limit :].decode(errors="ignore")


# Without regular expressions, since any task can write these texts.


def _in_json(message: str) -> str | None:
    """Return an exception as Airflow's workers write it since 3.2: the last one is the root of its chain."""
    type_, _, rest = message.rpartition('"exc_type":"')[2].partition('","exc_value":')
    if not type_.isidentifier() or not rest.startswith('"'):
        return None
    try:
        value, _ = _DECODER.raw_decode(rest)
    except ValueError:
        return None
    return f"{type_}: {value}"


def _in_text(message: str) -> str | None:
    """Return the last line of Python's own traceback: the last one is that of the exception not caught."""
    if _FRAME not in message:
        return None
    return next(filter(_is_exception, reversed(message.split("\n"))), None)


def _is_exception(line: str) -> bool:
    name, found, _ = line.partition(": ")
    *modules, class_ = name.split(".")
    return bool(found) and class_[:1].isupper() and all(map(str.isidentifier, [*modules, class_]))
