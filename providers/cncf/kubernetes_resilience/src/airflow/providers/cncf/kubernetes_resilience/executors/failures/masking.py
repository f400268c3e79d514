# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Takes secrets out of the messages of containers, before anything is logged, stored or told to others.

A worker masks what it knows to be secret when it prints it. What is printed before that is set up, and what
only the scheduler knows, is masked here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from airflow._shared.secrets_masker import redact

from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerFacts, PodFacts

_TOKEN = re.compile(
    # A JSON Web Token begins with the Base64 of '{"'. The worker of Airflow 3.1 prints its own at the start.
    r"\beyJ[\w-]{8,}(?:\.[\w-]*)*"
    # Its line may have been cut by the kubelet in the middle of the token.
    r"|\A[\w.-]+(?=', ti=TaskInstance\()"
)
_MASK = "***"


def mask_secrets(facts: PodFacts) -> PodFacts:
    """Return the reading of a pod without the secrets in its containers' messages."""
    if not any(container.message for container in facts.containers):
        return facts
    return replace(facts, containers=tuple(map(_masked, facts.containers)))


def _masked(container: ContainerFacts) -> ContainerFacts:
    if not container.message:
        return container
    return replace(container, message=_TOKEN.sub(_MASK, str(redact(container.message))))
