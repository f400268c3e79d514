# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The fields of pods, lists and watch events that are read. A decoder skips all others.

Most of a pod is of no use here: environment, volumes, managed fields. To skip them takes a third of the time
that it takes to decode them.

An answer with a part that has not the API's shape is decoded in full. :func:`~.facts.read_pod` reads it too.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec


class _Metadata(TypedDict, total=False):
    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    labels: Any
    annotations: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any


class _Container(TypedDict, total=False):
    name: Any
    image: Any
    resources: Any
    restartPolicy: Any
    args: Any
    """They name the task instance of a pod that has no annotation for it."""


class _Spec(TypedDict, total=False):
    nodeName: Any
    restartPolicy: Any
    terminationGracePeriodSeconds: Any
    resources: Any
    initContainers: list[_Container] | None
    containers: list[_Container] | None


class _ContainerStatus(TypedDict, total=False):
    name: Any
    state: Any
    lastState: Any


class _Condition(TypedDict, total=False):
    type: Any
    status: Any
    reason: Any
    message: Any
    lastTransitionTime: Any


class _Status(TypedDict, total=False):
    phase: Any
    reason: Any
    message: Any
    podIP: Any
    podIPs: Any
    conditions: list[_Condition] | None
    initContainerStatuses: list[_ContainerStatus] | None
    containerStatuses: list[_ContainerStatus] | None


class _Pod(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _Spec | None
    status: _Status | None


_ListMetadata = TypedDict("_ListMetadata", {"resourceVersion": Any, "continue": Any}, total=False)


class _PodList(TypedDict, total=False):
    metadata: _ListMetadata | None
    items: list[_Pod] | None


class _PodEvent(TypedDict, total=False):
    type: Any
    object: _Pod
    """The object of an ERROR event is a ``v1.Status``, without the shape of a pod, and is decoded in full."""


Decoder = msgspec.json.Decoder[Any]

EVERYTHING: Decoder = msgspec.json.Decoder(dict[str, Any])
POD_LIST: Decoder = msgspec.json.Decoder(_PodList)
POD_EVENT: Decoder = msgspec.json.Decoder(_PodEvent)


def decode(data: bytes, decoder: Decoder) -> dict[str, Any]:
    """
    Decode an answer.

    :param decoder: one of those above
    :raises msgspec.DecodeError: if it is not a JSON object
    :raises UnicodeDecodeError: if it is not UTF-8
    """
    try:
        decoded: dict[str, Any] = decoder.decode(data)
    except msgspec.ValidationError:
        decoded = EVERYTHING.decode(data)
    return decoded
