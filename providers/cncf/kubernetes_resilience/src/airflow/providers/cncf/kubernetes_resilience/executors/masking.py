# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Masks secrets in the text of pods, the API server, hooks, templates and the database, before the text is
logged or stored.

A worker masks what it knows to be secret when it prints it. Lines from before that set-up, and secrets that
only the scheduler knows, are masked here.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import TypeVar

from airflow._shared.secrets_masker import redact

from airflow.providers.cncf.kubernetes_resilience.pods.facts import ConditionFacts, ContainerFacts, PodFacts

T = TypeVar("T", PodFacts, ContainerFacts, ConditionFacts)

_TOKEN = re.compile(
    # A JSON Web Token begins with the Base64 of '{"'. The worker of Airflow 3.1 prints its own at the start.
    r"\beyJ[\w-]{8,}(?:\.[\w-]*)*"
    # The kubelet may have cut its line in the middle of the token.
    r"|\A[\w.-]+(?=', ti=TaskInstance\()"
)
_MASK = "***"

_ESCAPE = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrt"'/\\]))""")
"""Characters within quotes, as JSON, Go and Python write them."""

_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}

DESCRIPTION_LIMIT = 300
"""Characters of an exception that are shown to the user; a database's one has the whole statement in it."""

_QUOTED_TIMES = 2
"""A webhook that is quoted may quote a manifest itself."""


def mask(text: str) -> str:
    """Return a text without the secrets in it that Airflow knows, and without tokens."""
    lines = str(redact(text)).split("\n")
    return _TOKEN.sub(_MASK, "\n".join(_without_quoted(line) if "\\" in line else line for line in lines))


def mask_reason(reason: str | None) -> str | None:
    """Return a reason without secrets. A secret may be a word that Kubernetes has for a reason."""
    return reason if not reason or reason.isalpha() else mask(reason)


def mask_secrets(facts: PodFacts) -> PodFacts:
    """Return the reading of a pod without the secrets in its messages and reasons; itself if it has none."""
    masked = _masked(facts)
    parts = tuple(map(_masked, facts.containers)), tuple(map(_masked, facts.conditions))
    if masked is facts and parts == (facts.containers, facts.conditions):
        return facts  # which the informer keeps, too
    return replace(masked, containers=parts[0], conditions=parts[1])


def _without_quoted(line: str) -> str:
    """Return a line without quoted secrets; unchanged without secrets."""
    plain = line
    for _ in range(_QUOTED_TIMES):
        unquoted = _ESCAPE.sub(_character, plain)
        if unquoted == plain:
            break
        plain = unquoted
        if (masked := str(redact(plain))) != plain:
            line = plain = masked
    return line


def _character(escape: re.Match[str]) -> str:
    code, letter = escape[1] or escape[2], escape[3]
    character = chr(int(code, 16)) if code else _ESCAPED.get(letter, letter)
    # Half a character, or one that a database does not take, stays as it is.
    return character if letter or character.isprintable() else escape[0]


def _masked(item: T) -> T:
    message, reason = item.message and mask(item.message), mask_reason(item.reason)
    is_clean = (message, reason) == (item.message, item.reason)
    return item if is_clean else replace(item, message=message, reason=reason)


def describe(error: BaseException) -> str:
    """
    Return an exception in one line, for the user of a task.

    The scheduler writes the line into the audit log, and ends if the database does not take a character.
    """
    line = textwrap.shorten(mask(f"{type(error).__name__}: {error}"), DESCRIPTION_LIMIT)
    return "".join(item if item.isprintable() else repr(item)[1:-1] for item in line)
