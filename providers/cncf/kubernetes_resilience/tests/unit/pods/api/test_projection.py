# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import msgspec
import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.projection import (
    EVERYTHING,
    POD_EVENT,
    POD_LIST,
    decode,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod

from ....support.pod_fixtures import PODS, manifest_of

KEPT = {"name", "image", "resources", "restartPolicy", "args"}
"""Of a container."""


@pytest.mark.parametrize("name", PODS)
def test_nothing_that_is_read_of_a_pod_is_skipped(name):
    manifest = manifest_of(name)
    event = decode(json.dumps({"type": "ADDED", "object": manifest}, default=str).encode(), POD_EVENT)
    page = decode(json.dumps({"items": [manifest]}, default=str).encode(), POD_LIST)
    for projected in (event["object"], page["items"][0]):
        assert all(set(item) <= KEPT for item in projected["spec"]["containers"])
        assert projected["spec"]["restartPolicy"] == manifest["spec"]["restartPolicy"]
        assert read_pod(projected) == read_pod(manifest)


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": []},
        {"spec": {"initContainers": {"name": "git-sync"}}},
        {"status": {"conditions": [7]}},
        {"status": {"containerStatuses": "none"}},
        {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"},
    ],
    ids=["metadata", "init containers", "condition", "container statuses", "error"],
)
def test_what_is_not_shaped_like_a_pod_is_decoded_in_full(odd):
    event = {"type": "ERROR", "object": {**odd, "extra": 1}}
    assert decode(json.dumps(event).encode(), POD_EVENT) == event


@pytest.mark.parametrize("decoder", [EVERYTHING, POD_LIST, POD_EVENT])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"text"', b"<html>"])
def test_what_is_no_object_is_refused(decoder, data):
    with pytest.raises(msgspec.DecodeError):
        decode(data, decoder)
