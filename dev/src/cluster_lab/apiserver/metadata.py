# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the server fills in, keeps and checks in every object's metadata."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any

from cluster_lab.apiserver.resources import Manifest

_LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_DROPPED_IF_EMPTY = ("labels", "annotations")


def timestamp(moment: datetime) -> str:
    """:returns: a time as metav1.Time has it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def without_nulls(value: Any) -> Any:
    """:returns: JSON without null members, which the API treats as absent."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value]
    return value


def without_type(obj: Manifest) -> Manifest:
    """:returns: the object as it is stored: kind and apiVersion are the resource's."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def new_metadata(given: Manifest, namespace: str, now: datetime) -> Manifest:
    """:returns: metadata for a new object."""
    metadata = {name: value for name, value in given.items() if name not in _SERVER_OWNED}
    if namespace:
        metadata["namespace"] = namespace
    return tidy(metadata | {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp(now)})


def updated_metadata(given: Manifest, current: Manifest) -> Manifest:
    """:returns: metadata for a changed object: what the server owns cannot be changed by an update."""
    kept = {name: current[name] for name in (*_SERVER_OWNED, "name", "namespace") if name in current}
    own = {name: value for name, value in given.items() if name not in _SERVER_OWNED}
    return tidy(own | kept | {"resourceVersion": current["resourceVersion"]})


def tidy(metadata: Manifest) -> Manifest:
    """:returns: metadata without empty members and managedFields, which this server does not track."""
    empty = {name for name in _DROPPED_IF_EMPTY if name in metadata and not metadata[name]}
    return {name: value for name, value in metadata.items() if name not in empty | {"managedFields"}}


def check_metadata(metadata: Manifest) -> list[str]:
    """:returns: what is wrong with the name and the labels."""
    name = metadata.get("name", "")
    problems = [] if len(name) <= 253 and _SUBDOMAIN.fullmatch(name) else [f'metadata.name: "{name}"']
    for key, value in (metadata.get("labels") or {}).items():
        if not _LABEL_KEY.fullmatch(key) or not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            problems.append(f'metadata.labels: "{key}={value}"')
    return problems
