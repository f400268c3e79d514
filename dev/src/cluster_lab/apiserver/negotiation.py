# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How much of an object a client wants: all, its metadata, or a table row.

https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from cluster_lab.apiserver.resources import Manifest, Resource
from cluster_lab.apiserver.status import not_acceptable
from cluster_lab.apiserver.store import Record
from cluster_lab.apiserver.tables import columns, row

META_VERSION = "meta.k8s.io/v1"


class Form(Enum):
    """A representation of objects."""

    FULL = ""
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"
    TABLE = "Table"


def negotiate(accept: str, *, many: bool) -> Form:
    """Take the first clause of an Accept header that can be served.

    :param many: whether the response is a list (a watch is not: its events carry single objects).
    :raises ApiError: 406 if no clause can be.
    """
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type not in ("application/json", "application/*", "*/*", ""):
            continue
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        form = _form(values)
        if form is not None:
            return _checked(form, many)
    raise not_acceptable("only the following media types are accepted: application/json")


def _form(parameters: dict[str, str]) -> Form | None:
    kind = parameters.get("as", "")
    if not kind:
        return Form.FULL
    is_known = (parameters.get("g"), parameters.get("v")) == ("meta.k8s.io", "v1")
    return next((form for form in Form if is_known and form.value == kind), None)


def _checked(form: Form, many: bool) -> Form:
    if many and form is Form.METADATA:
        raise not_acceptable("you requested PartialObjectMetadata, but the object is a list")
    if not many and form is Form.METADATA_LIST:
        raise not_acceptable("you requested PartialObjectMetadataList, but the object is not a list")
    return form


def encode_object(record: Record, form: Form) -> bytes:
    """:returns: the JSON of a single object."""
    match form:
        case Form.FULL:
            return record.json
        case Form.TABLE:
            return msgspec.json.encode(_table(record.resource, [record], {}))
    return msgspec.json.encode(_metadata(record))


def encode_list(resource: Resource, records: Iterable[Record], form: Form, metadata: Manifest) -> bytes:
    """:returns: the JSON of a list.
    :param metadata: the list's own: resourceVersion, continue, remainingItemCount.
    """
    match form:
        case Form.FULL:
            head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
            items = b",".join(record.item for record in records)
            return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"
        case Form.TABLE:
            return msgspec.json.encode(_table(resource, records, metadata))
    return msgspec.json.encode(
        {
            "kind": Form.METADATA_LIST.value,
            "apiVersion": META_VERSION,
            "metadata": metadata,
            "items": [_metadata(record) for record in records],
        }
    )


def _metadata(record: Record) -> Manifest:
    return {
        "kind": Form.METADATA.value,
        "apiVersion": META_VERSION,
        "metadata": record.obj["metadata"],
    }


def _table(resource: Resource, records: Iterable[Record], metadata: Manifest) -> Manifest:
    rows = [{"cells": row(record), "object": _metadata(record)} for record in records]
    return {
        "kind": Form.TABLE.value,
        "apiVersion": META_VERSION,
        "metadata": metadata,
        "columnDefinitions": columns(resource),
        "rows": rows,
    }
