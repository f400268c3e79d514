# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The three patch formats: JSON patch, JSON merge patch, and Kubernetes' strategic merge patch.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonpatch
import jsonpointer

from cluster_lab.apiserver.resources import Manifest
from cluster_lab.apiserver.status import ApiError, bad_request, unsupported_media_type

MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
    "podIPs": "ip",
    "hostIPs": "ip",
    "ownerReferences": "uid",
}
"""List fields that a strategic merge patch merges by key; every other list of objects is replaced.

containerStatuses, initContainerStatuses, tolerations and taints are replaced: they are documented as atomic.
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

_MERGED_VALUES = {"finalizers", "podCIDRs"}
_REMOVALS = "$deleteFromPrimitiveList/"


def apply_patch(content_type: str, target: Manifest, patch: Any) -> Manifest:
    """Apply a patch without changing the target.

    :param content_type: media type of the request body.
    :raises ApiError: 415 for an unknown format, 400 or 422 for a patch that cannot be applied.
    """
    try:
        apply = _FORMATS[content_type]
    except KeyError:
        raise unsupported_media_type(sorted(_FORMATS)) from None
    return apply(target, patch)


def json_patch(target: Manifest, patch: Any) -> Manifest:
    """RFC 6902. A failed test or a missing path is 422, as is a result that is no object."""
    if not isinstance(patch, list):
        raise bad_request("json: cannot unmarshal object into a list of JSON patch operations")
    try:
        patched = jsonpatch.JsonPatch(patch).apply(target)
    except (jsonpatch.InvalidJsonPatch, TypeError) as error:
        raise bad_request(f"invalid JSON patch: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise _inapplicable(str(error)) from error
    if not isinstance(patched, dict):
        raise _inapplicable("the result is no object")
    return patched


def _inapplicable(why: str) -> ApiError:
    return ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")


def merge_patch(target: Manifest, patch: Any) -> Manifest:
    """RFC 7386."""
    return _merge_object(_require_object(patch), target, _merge_value)


def strategic_merge_patch(target: Manifest, patch: Any) -> Manifest:
    """As merge patch, but lists of keyed objects are merged element by element."""
    return _strategic_object(_require_object(patch), target)


def _require_object(patch: Any) -> Manifest:
    if not isinstance(patch, dict):
        raise bad_request("json: cannot unmarshal the patch into an object")
    return patch


def _merge_object(patch: Manifest, target: Manifest, merge: Callable[[str, Any, Any], Any]) -> Manifest:
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(name, value, merged.get(name))
    return merged


def _merge_value(_name: str, value: Any, current: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return _merge_object(value, current if isinstance(current, dict) else {}, _merge_value)


def _strategic_object(patch: Manifest, target: Manifest) -> Manifest:
    fields = {name: value for name, value in patch.items() if not name.startswith("$")}
    match patch.get("$patch", "merge"):
        case "replace":
            return fields
        case "delete":
            return {}
        case "merge":
            merged = _merge_object(fields, target, _strategic_value)
            return _without_listed_values(patch, merged)
    raise bad_request(f"unknown $patch directive: {patch['$patch']}")


def _without_listed_values(patch: Manifest, merged: Manifest) -> Manifest:
    for name, gone in patch.items():
        if name.startswith(_REMOVALS):
            field = name.removeprefix(_REMOVALS)
            merged[field] = [value for value in merged.get(field, []) if value not in gone]
    return merged


def _strategic_value(name: str, value: Any, current: Any) -> Any:
    if isinstance(value, dict):
        return _strategic_object(value, current if isinstance(current, dict) else {})
    if isinstance(value, list) and name in _MERGED_VALUES:
        return [*(current or []), *(item for item in value if item not in (current or []))]
    if isinstance(value, list) and name in MERGE_KEYS:
        return _strategic_list(MERGE_KEYS[name], value, current or [])
    return value


def _strategic_list(key: str, patches: list[Manifest], current: list[Manifest]) -> list[Manifest]:
    if any(patch.get("$patch") == "replace" for patch in patches):
        return [patch for patch in patches if "$patch" not in patch]
    merged = {item.get(key): item for item in current}
    for patch in patches:
        if key not in patch:
            raise bad_request(f"map: {patch} does not contain declared merge key: {key}")
        if patch.get("$patch") == "delete":
            merged.pop(patch[key], None)
        else:
            merged[patch[key]] = _strategic_object(patch, merged.get(patch[key], {}))
    return list(merged.values())


_FORMATS: dict[str, Callable[[Manifest, Any], Manifest]] = {
    "application/json-patch+json": json_patch,
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
}
