# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A plain HTTP client with which tests state what a Kubernetes API server does, whichever server it is."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from cluster_lab.apiserver.patches import MERGE
from cluster_lab.kubeconfig import Kubeconfig

Manifest = dict[str, Any]

READ_TIMEOUT = 300.0
"""Seconds without a byte after which a test fails, rather than hangs."""
NO_SCHEDULER = "conformance"
"""A scheduler that does not exist, so that pods stay where the test puts them."""


@dataclass(frozen=True)
class Target:
    """The server under test."""

    http: httpx.Client
    compact: Callable[[], None]
    """Expires older resource versions."""


def connect(path: Path) -> httpx.Client:
    """:returns: a client for the current context of a kubeconfig."""
    config = Kubeconfig(path)
    return httpx.Client(
        base_url=config.url,
        headers=config.headers(),
        verify=config.tls(),
        timeout=READ_TIMEOUT,
        trust_env=False,
    )


def failure(response: httpx.Response, code: int, reason: str) -> Manifest:
    """Assert that a response is a failed Status of this code and reason.

    :returns: the Status.
    """
    assert response.status_code == code, response.text
    return check_status(response.json(), code, reason)


def check_status(status: Manifest, code: int, reason: str) -> Manifest:
    """Assert that an object is a failed Status of this code and reason."""
    expected = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    assert {name: status.get(name) for name in expected} == expected
    assert isinstance(status["metadata"], dict)
    assert status["message"]
    return status


class EventStream:
    """The events of one watch."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[tuple[str, Manifest]]:
        return self

    def __next__(self) -> tuple[str, Manifest]:
        event = json.loads(next(self._lines))
        assert set(event) == {"type", "object"}
        return event["type"], event["object"]

    def take(self, count: int) -> list[tuple[str, Manifest]]:
        """:returns: the next events, waiting for them."""
        return [next(self) for _ in range(count)]

    def names(self, count: int) -> list[tuple[str, str]]:
        """:returns: type and object name of the next events."""
        return [(kind, obj["metadata"]["name"]) for kind, obj in self.take(count)]


@dataclass
class Api:
    """A namespace of its own on the server under test, and short words for what tests do there."""

    http: httpx.Client
    namespace: str
    nodes: list[str] = field(default_factory=list)

    @classmethod
    def in_new_namespace(cls, http: httpx.Client) -> Self:
        """:returns: an API with a namespace that no other test has."""
        name = f"conformance-{uuid.uuid4().hex[:8]}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        response = http.post("/api/v1/namespaces", json=body)
        assert response.status_code == 201, response.text
        return cls(http, name)

    @property
    def pods(self) -> str:
        """:returns: path of the namespace's pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def path(self, name: str, subresource: str = "") -> str:
        """:returns: path of a pod."""
        return f"{self.pods}/{name}" + (f"/{subresource}" if subresource else "")

    def create(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
        """Create a pod that no scheduler touches."""
        response = self.http.post(self.pods, json=pod(name, labels, **spec))
        assert response.status_code == 201, response.text
        return _object(response)

    def get(self, name: str) -> Manifest:
        """:returns: a pod."""
        return _object(self.http.get(self.path(name)).raise_for_status())

    def names(self, **query: Any) -> list[str]:
        """:returns: names of the pods that a list finds."""
        response = self.http.get(self.pods, params=query).raise_for_status()
        return [item["metadata"]["name"] for item in response.json()["items"]]

    def version(self) -> str:
        """:returns: the resourceVersion of a list just made, to watch from."""
        return str(self.http.get(self.pods).raise_for_status().json()["metadata"]["resourceVersion"])

    def create_node(self, **node: Any) -> str:
        """Create a node that has no kubelet.

        :returns: its name.
        """
        name = f"conformance-{uuid.uuid4().hex[:8]}"
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} | node
        response = self.http.post("/api/v1/nodes", json=body)
        assert response.status_code == 201, response.text
        self.nodes.append(name)
        return name

    def bind(self, name: str, node: str) -> httpx.Response:
        """Give a pod to a node."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        return self.http.post(self.path(name, "binding"), json=body)

    def create_bound(self, name: str, **spec: Any) -> Manifest:
        """Create a pod that is on a node."""
        self.create(name, **spec)
        self.bind(name, self.create_node()).raise_for_status()
        return self.get(name)

    def set_status(self, name: str, **status: Any) -> Manifest:
        """Change fields of a pod's status."""
        response = self.patch(name, {"status": status}, subresource="status")
        return _object(response.raise_for_status())

    def patch(
        self, name: str, patch: Any, content_type: str = MERGE, subresource: str = ""
    ) -> httpx.Response:
        """Patch a pod."""
        path, headers = self.path(name, subresource), {"Content-Type": content_type}
        return self.http.patch(path, json=patch, headers=headers)

    def delete(self, name: str, **options: Any) -> httpx.Response:
        """Delete a pod, with the options in the body."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions"} | options
        return self.http.request("DELETE", self.path(name), json=body)

    def evict(self, name: str) -> httpx.Response:
        """Evict a pod, in the version of the API that the server has."""
        resources = self.http.get("/api/v1").raise_for_status().json()["resources"]
        entry = next(resource for resource in resources if resource["name"] == "pods/eviction")
        metadata = {"name": name, "namespace": self.namespace}
        version = f"{entry['group']}/{entry['version']}"
        body = {"apiVersion": version, "kind": "Eviction", "metadata": metadata}
        return self.http.post(self.path(name, "eviction"), json=body)

    @contextmanager
    def watch(
        self,
        path: str = "",
        **query: Any,
    ) -> Iterator[EventStream]:
        """Watch the namespace's pods, or another path."""
        params = {"watch": "1"} | query
        with self.http.stream("GET", path or self.pods, params=params) as response:
            yield EventStream(response)

    def clean_up(self) -> None:
        """Remove what the test has left."""
        for name in self.names():
            self.delete(name, gracePeriodSeconds=0)
        for node in self.nodes:
            self.http.delete(f"/api/v1/nodes/{node}")
        self.http.delete(f"/api/v1/namespaces/{self.namespace}")


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """:returns: a minimal pod manifest."""
    container = {"name": "base", "image": "example.test/none:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"schedulerName": NO_SCHEDULER, "restartPolicy": "Never", "containers": [container]} | spec,
    }


def condition(obj: Manifest, kind: str) -> Manifest | None:
    """:returns: the condition of that type in an object's status."""
    conditions = obj["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), None)


def _object(response: httpx.Response) -> Manifest:
    obj: Manifest = response.json()
    return obj
