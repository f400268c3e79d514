# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which requests of the scheduler are meant, for the holds and faults of the proxy."""

from __future__ import annotations

from cluster_lab.apiserver import RequestInfo


def creates_pod(info: RequestInfo) -> bool:
    """Whether a pod is created."""
    return (info.verb, info.resource, info.subresource) == ("create", "pods", "")


def labels_pod(info: RequestInfo) -> bool:
    """Whether a pod gets a label: that of another scheduler, or the one that it is done."""
    return (info.verb, info.resource, info.subresource) == ("patch", "pods", "")


def deletes_pod(info: RequestInfo) -> bool:
    """Whether a pod is deleted."""
    return (info.verb, info.resource) == ("delete", "pods")
