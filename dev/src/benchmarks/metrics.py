# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the API server says of itself.

.. seealso:: https://kubernetes.io/docs/reference/instrumentation/metrics/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Requests = Mapping[tuple[str, str], float]
"""How many, by verb and subresource."""


def parse_requests(text: str) -> Requests:
    """Read how many requests about pods there were, by verb and subresource."""
    counts: Counter[tuple[str, str]] = Counter()
    for match in _LINE.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels.get("resource") == "pods":
            counts[labels["verb"], labels.get("subresource", "")] += int(float(match["value"]))
    return counts


def total_since(before: Requests, after: Requests) -> float:
    """Return how many there were between two readings."""
    return sum(after.values()) - sum(before.values())
