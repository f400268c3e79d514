# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors, as list and watch take them.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cluster_lab.apiserver.resources import Manifest, Resource
from cluster_lab.apiserver.status import bad_request
from cluster_lab.apiserver.store import Record

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
LABEL_KEY = re.compile(_KEY)
LABEL_VALUE = re.compile(_VALUE)
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_OUTER_COMMA = re.compile(r",(?![^()]*\))")
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn"}
_FIELD_TERM = re.compile(r"([^=!]+)(==|=|!=)(.*)", re.DOTALL)


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
            case "DoesNotExist":
                return value is None
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
        raise bad_request(f"this server does not know the operator {self.operator}")


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """:raises ApiError: 400 if the text is no label selector."""
    if not text.strip():
        return ()
    return tuple(_requirement(term.strip()) for term in _OUTER_COMMA.split(text))


def _requirement(term: str) -> Requirement:
    if found := _EXISTS.fullmatch(term):
        return Requirement(found[2], "DoesNotExist" if found[1] else "Exists")
    if found := _EQUALITY.fullmatch(term):
        return Requirement(found[1], _OPERATORS[found[2]], (found[3],))
    if found := _SET.fullmatch(term):
        values = tuple(value.strip() for value in found[3].split(","))
        if all(LABEL_VALUE.fullmatch(value) for value in values):
            return Requirement(found[1], _OPERATORS[found[2]], values)
    raise bad_request(f"unable to parse requirement: {term!r} is no valid label selector term")


def parse_fields(text: str, resource: Resource) -> tuple[Requirement, ...]:
    """:raises ApiError: 400 for a syntax error, or a field that this resource cannot be selected by."""
    return tuple(_field_term(term.strip(), resource) for term in text.split(",") if term.strip())


def _field_term(term: str, resource: Resource) -> Requirement:
    found = _FIELD_TERM.fullmatch(term)
    if found is None or found[1] not in resource.fields:
        raise bad_request(f"unable to parse requirement: {term!r} is no valid field selector term")
    return Requirement(found[1], _OPERATORS[found[2]], (found[3],))


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
