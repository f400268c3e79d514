# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors, in the forms that are sent: ``k``, ``k=v``, ``k!=v`` and ``k notin (v)``.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cluster_lab.apiserver.resources import Manifest
from cluster_lab.apiserver.status import ApiError
from cluster_lab.apiserver.store import Record

_TERM = re.compile(r"([^\s!=]+)(?:(!?=)(\S*)| notin \(([^()]*)\))?")
_OUTER_COMMA = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True)
class Requirement:
    """One term of a selector, with the operator names of node affinity's matchExpressions."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """:returns: whether labels satisfy the term. A missing key satisfies NotIn."""
        value = labels.get(self.key)
        match self.operator:
            case "Exists":
                return value is not None
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
        raise KeyError(self.operator)


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """:raises ApiError: 400 for another form."""
    return tuple(map(_requirement, _OUTER_COMMA.split(text))) if text else ()


def _requirement(term: str) -> Requirement:
    found = _TERM.fullmatch(term)
    if found is None:
        raise ApiError(400, "BadRequest", f"this server does not know the selector {term!r}")
    key, sign, value, others = found.groups()
    if others is not None:
        return Requirement(key, "NotIn", tuple(others.replace(" ", "").split(",")))
    return Requirement(key, {None: "Exists", "=": "In", "!=": "NotIn"}[sign], (value,))


def _field_value(obj: Manifest, field: str) -> str:
    """:returns: a field as a selector sees it: absent is ""."""
    value: object = obj
    for step in field.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Selection:
    """What a list or watch is about."""

    namespace: str = ""
    """"" selects all namespaces."""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, record: Record) -> bool:
        """:returns: whether an object is selected."""
        if self.namespace and record.key[0] != self.namespace:
            return False
        labels = record.obj["metadata"].get("labels") or {}
        return all(term.matches(labels) for term in self.labels) and all(
            term.matches({term.key: _field_value(record.obj, term.key)}) for term in self.fields
        )
