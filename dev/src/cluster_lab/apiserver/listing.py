# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Lists in pages.

A continue token names the revision of the first page and the last key sent, and later pages show the objects
as they were at that revision, so that a list in pages is as consistent as one in one piece.
https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
"""

from __future__ import annotations

import base64

import msgspec

from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.selectors import Selection, parse_selector
from cluster_lab.apiserver.status import expired
from cluster_lab.apiserver.store import Key, Store


def selection_of(info: RequestInfo) -> Selection:
    """:raises ApiError: 400 for a bad selector."""
    return Selection(
        info.namespace,
        parse_selector(info.query.get("labelSelector", "")),
        parse_selector(info.query.get("fieldSelector", "")),
    )


def list_page(store: Store, info: RequestInfo, *, only_metadata: bool) -> bytes:
    """:param only_metadata: whether the client has asked for a ``PartialObjectMetadataList``.
    :returns: the body of the response.
    :raises ApiError: 400 for a bad selector, 410 for an expired token.
    """
    resource, selection, limit = info.target, selection_of(info), int(info.query.get("limit", "0"))
    revision, after = store.revision, None
    if token := info.query.get("continue"):
        revision, after = _decode(token)
        if revision < store.oldest:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
    elif info.query.get("resourceVersion") == "0":
        # A real server answers out of its watch cache, in one piece whatever the limit is.
        limit = 0
    records = store.records(resource) if revision == store.revision else store.records_at(resource, revision)
    found = [r for r in records if (after is None or r.key > after) and selection.matches(r)]
    found.sort(key=lambda record: record.key)
    metadata = {"resourceVersion": str(revision)}
    if limit and len(found) > limit:
        metadata["continue"] = _encode(revision, found[limit - 1].key)
        found = found[:limit]
    kind, version, items = f"{resource.kind}List", "v1", [record.item for record in found]
    if only_metadata:
        kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        items = [msgspec.json.encode({"metadata": record.obj["metadata"]}) for record in found]
    head = {"kind": kind, "apiVersion": version, "metadata": metadata}
    return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def _encode(revision: int, last: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((revision, last))).decode()


def _decode(token: str) -> tuple[int, Key]:
    return msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, Key])
