# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Lists in pages.

A continue token names the revision of the first page and the last key sent, and later pages show the objects
as they were at that revision, so that a list in pages is as consistent as one in one piece.
https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.resources import Manifest, Resource
from cluster_lab.apiserver.selectors import Selection, parse_fields, parse_labels
from cluster_lab.apiserver.status import bad_request, expired, version_too_large
from cluster_lab.apiserver.store import Key, Record, Store

_NOW = -1
"""Revision in the token that an expired continue offers: go on, without the promise of consistency."""


@dataclass(frozen=True)
class Page:
    """One response to a list."""

    resource: Resource
    records: list[Record]
    metadata: Manifest

    def json(self, *, only_metadata: bool) -> bytes:
        """:param only_metadata: whether the client has asked for a ``PartialObjectMetadataList``.
        :returns: the body of the response.
        """
        kind, version = f"{self.resource.kind}List", "v1"
        items = [record.item for record in self.records]
        if only_metadata:
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
            items = [msgspec.json.encode({"metadata": record.obj["metadata"]}) for record in self.records]
        head = {"kind": kind, "apiVersion": version, "metadata": self.metadata}
        return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def selection_of(info: RequestInfo) -> Selection:
    """:raises ApiError: 400 for a bad selector."""
    return Selection(
        info.namespace,
        parse_labels(info.query.get("labelSelector", "")),
        parse_fields(info.query.get("fieldSelector", ""), info.target),
    )


def parse_version(text: str) -> int:
    """:raises ApiError: 400 for a resource version that is no number; "" is 0."""
    if text and not text.isdecimal():
        raise bad_request(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text or "0")


def list_page(store: Store, info: RequestInfo) -> Page:
    """:raises ApiError: 400 for bad parameters, 410 for an expired token, 504 for a version yet to come."""
    selection, limit = selection_of(info), _limit(info.query)
    token, version = info.query.get("continue", ""), info.query.get("resourceVersion", "")
    if token:
        if version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = _decode(token)
        revision = _reachable(store, info.target, revision, after)
        return _page(store, info.target, selection, limit, revision, after)
    if parse_version(version) > store.revision:
        raise version_too_large(int(version), store.revision)
    # From "0" a real server answers out of its watch cache, in one piece whatever the limit is.
    unlimited = version == "0"
    return _page(store, info.target, selection, 0 if unlimited else limit, store.revision, None)


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "0")
    if not text.isdecimal():
        raise bad_request(f'limit: Invalid value: "{text}"')
    return int(text)


def _reachable(store: Store, resource: Resource, revision: int, after: Key) -> int:
    if revision == _NOW:
        return store.revision
    if revision < store.oldest(resource):
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. "
            "Start a new list, or go on with the continue token of this status, inconsistently.",
            {"continue": _encode(_NOW, after)},
        )
    return revision


def _page(
    store: Store, resource: Resource, selection: Selection, limit: int, revision: int, after: Key | None
) -> Page:
    records = store.records(resource) if revision == store.revision else store.records_at(resource, revision)
    found = [r for r in records if (after is None or r.key > after) and selection.matches(r)]
    found.sort(key=lambda record: record.key)
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if limit and len(found) > limit:
        metadata["continue"] = _encode(revision, found[limit - 1].key)
        if not selection.by_content:
            metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return Page(resource, found, metadata)


def _encode(revision: int, last: Key) -> str:
    token = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": "/".join(last)})
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _decode(token: str) -> tuple[int, Key]:
    try:
        raw = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = raw["start"].partition("/")
        return int(raw["rv"]), (namespace, name)
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_request("continue key is not valid") from error
