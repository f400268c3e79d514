# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""JSON merge patch, and of Kubernetes' strategic merge patch what kubelets and Airflow send.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from typing import Any

from cluster_lab.apiserver.resources import Manifest
from cluster_lab.apiserver.status import ApiError

MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
"""Merges ``conditions`` by type, so that the kubelet's patches leave those of others alone."""

KEYED_BY_TYPE = ("conditions", "addresses")
"""Lists that a strategic merge patch merges by the ``type`` of their items; other lists are replaced here."""


def apply_patch(content_type: str, target: Manifest, patch: Any) -> Manifest:
    """Apply a patch without changing the target.

    :param content_type: media type of the request body.
    :raises ApiError: 415 for an unknown format.
    """
    if content_type not in (MERGE, STRATEGIC_MERGE):
        raise ApiError(415, "UnsupportedMediaType", f"accepted are {MERGE} and {STRATEGIC_MERGE}")
    return _merged(target, patch, () if content_type == MERGE else KEYED_BY_TYPE)


def _merged(target: Manifest, patch: Manifest, keyed: tuple[str, ...]) -> Manifest:
    merged = target | {name: _value(name, target.get(name), value, keyed) for name, value in patch.items()}
    return {name: value for name, value in merged.items() if value is not None}


def _value(name: str, current: Any, value: Any, keyed: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return _merged(current if isinstance(current, dict) else {}, value, keyed)
    if isinstance(value, list) and name in keyed:
        items = {item["type"]: item for item in current or []}
        for item in value:
            items[item["type"]] = _merged(items.get(item["type"], {}), item, keyed)
        return list(items.values())
    return value
