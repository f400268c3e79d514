# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Takes secrets out of what others say, before anything of it is logged, stored or told: a pod, the API server,
a hook, a template, the database.

A worker masks what it knows to be secret when it prints it. What is printed before that is set up, and what
only the scheduler knows, is masked here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from airflow._shared.secrets_masker import redact

from airflow.providers.cncf.kubernetes_resilience.pods.facts import ConditionFacts, ContainerFacts, PodFacts

T = TypeVar("T", ContainerFacts, ConditionFacts)

_TOKEN = re.compile(
    # A JSON Web Token begins with the Base64 of '{"'. The worker of Airflow 3.1 prints its own at the start.
    r"\beyJ[\w-]{8,}(?:\.[\w-]*)*"
    # Its line may have been cut by the kubelet in the middle of the token.
    r"|\A[\w.-]+(?=', ti=TaskInstance\()"
)
_MASK = "***"

_ESCAPE = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrt"'/\\]))""")
"""How JSON, Go and Python write characters within quotes."""

_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}

_QUOTED_TIMES = 2
"""A webhook that is quoted may quote a manifest itself."""


def mask(text: str) -> str:
    """Return a text without the secrets in it that Airflow knows, and without tokens."""
    lines = str(redact(text)).split("\n")
    return _TOKEN.sub(_MASK, "\n".join(_without_quoted(line) if "\\" in line else line for line in lines))


def mask_secrets(facts: PodFacts) -> PodFacts:
    """Return the reading of a pod without the secrets in its messages."""
    messages = (item.message for items in (facts.containers, facts.conditions) for item in items)
    if not facts.message and not any(messages):
        return facts
    return replace(
        facts,
        message=facts.message and mask(facts.message),
        containers=_all_masked(facts.containers),
        conditions=_all_masked(facts.conditions),
    )


def _without_quoted(line: str) -> str:
    """Return a line without secrets that somebody has quoted; as it is if it has none."""
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


def _all_masked(items: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(replace(item, message=mask(item.message)) if item.message else item for item in items)
