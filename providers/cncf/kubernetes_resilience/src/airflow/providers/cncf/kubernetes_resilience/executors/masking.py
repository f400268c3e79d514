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


def mask(text: str) -> str:
    """Return a text without the secrets in it that Airflow knows, and without tokens."""
    return _TOKEN.sub(_MASK, str(redact(text)))


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


def _all_masked(items: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(replace(item, message=mask(item.message)) if item.message else item for item in items)
