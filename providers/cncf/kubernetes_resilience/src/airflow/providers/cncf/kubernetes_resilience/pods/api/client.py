# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The few calls of the Kubernetes API that the executor needs, for pods as plain dictionaries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ForeignAnswerError,
    ResourceExpiredError,
    error_from_status,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.projection import POD_EVENT, POD_LIST
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import Json, JsonTransport

T = TypeVar("T")

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""
Asks for the metadata of an object only. No more is read of the answer to a change. A server that does not
know the form sends the whole object.

.. seealso:: https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
"""

PAGE_SIZE = 500
"""Pods per page of a list: what ``kubectl`` uses."""

_EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")

_PODS, _ALL_PODS = "/api/v1/namespaces/{namespace}/pods", "/api/v1/pods"
_POD = _PODS + "/{name}"


class WatchEvent(NamedTuple):
    """An event of a watch."""

    type: str
    """One of :data:`_EVENTS`."""
    object: Json


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The result of a list, and the resource version from which a watch continues."""

    items: list[T]
    resource_version: str


class PodClient:
    """Pods of one API server, through one connection pool. Bound to the event loop that it was made in."""

    def __init__(self, transport: JsonTransport) -> None:
        self._transport = transport

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def list_pods(
        self,
        namespace: str | None,
        *,
        label_selector: str,
        read: Callable[[Json], T | None],
    ) -> Listing[T]:
        """
        List pods with a consistent read, page by page.

        A list from the server's cache (``resourceVersion=0``) may be older than what a watch has shown. Pods
        would seem to vanish and to come back.

        :param namespace: None for all
        :param read: applied to each manifest as its page arrives, so that only one page is in memory; None
            skips the pod
        :raises KubernetesApiError: if a page cannot be read

        .. seealso:: https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
        """
        query = {"labelSelector": label_selector}
        try:
            return await self._list(namespace, {**query, "limit": str(PAGE_SIZE)}, read)
        except ResourceExpiredError:
            # The snapshot was compacted between two pages. A compaction could come again between pages, but
            # not in one request for all.
            return await self._list(namespace, query, read)

    async def _list(
        self,
        namespace: str | None,
        query: Mapping[str, str],
        read: Callable[[Json], T | None],
    ) -> Listing[T]:
        items: list[T] = []
        page_query = query
        while True:
            page = await self._transport.request(
                "GET", *_collection(namespace), query=page_query, decoder=POD_LIST
            )
            metadata, manifests = page.get("metadata"), page.get("items") or []
            if not isinstance(metadata, dict):
                metadata = {}
            version = metadata.get("resourceVersion")
            if not (version and isinstance(manifests, list)):
                # A proxy may say anything with status 200. Taken for an empty list, all pods would be gone.
                raise ForeignAnswerError("not a list of pods")
            items += [item for item in map(read, manifests) if item is not None]
            if not (token := metadata.get("continue")):
                return Listing(items, str(version))
            page_query = {**query, "continue": token}

    async def watch_pods(
        self,
        namespace: str | None,
        *,
        label_selector: str,
        resource_version: str,
        timeout_seconds: int,
        inactivity_timeout: float,
    ) -> AsyncGenerator[WatchEvent]:
        """
        Yield the events after a resource version, until the server ends the stream.

        :param namespace: None for all
        :param timeout_seconds: after which the server ends the stream
        :param inactivity_timeout: seconds without a byte after which the stream counts as dead
        :raises ResourceExpiredError: if the resource version is too old
        :raises KubernetesApiError: if the watch is refused, breaks off or is silent for too long

        .. seealso:: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
        """
        query = {
            "labelSelector": label_selector,
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            "allowWatchBookmarks": "true",
            "watch": "true",
        }
        stream = self._transport.stream(
            *_collection(namespace), query=query, inactivity_timeout=inactivity_timeout, decoder=POD_EVENT
        )
        async with aclosing(stream):
            async for line in stream:
                yield _event(line)

    async def get_pod(self, namespace: str, name: str) -> Json:
        """Read one pod."""
        return await self._transport.request("GET", _POD, {"namespace": namespace, "name": name})

    async def create_pod(self, namespace: str, body: Json) -> Json:
        """Create a pod and return its metadata as stored."""
        return await self._transport.request(
            "POST", _PODS, {"namespace": namespace}, body=body, accept=METADATA
        )

    async def patch_pod(self, namespace: str, name: str, body: Json) -> Json:
        """
        Apply a JSON merge patch and return the pod's metadata.

        .. seealso:: https://www.rfc-editor.org/rfc/rfc7386
        """
        return await self._transport.request(
            "PATCH",
            _POD,
            {"namespace": namespace, "name": name},
            body=body,
            content_type="application/merge-patch+json",
            accept=METADATA,
        )

    async def delete_pod(
        self,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Json:
        """
        Delete a pod if it is still the one with that UID.

        :param resource_version: a further precondition; None for any version
        :param options: more fields of ``v1.DeleteOptions``; see :func:`delete_options`
        :return: the pod's metadata after the call, or a ``Status``
        :raises PodConflictError: if it is another one, or at another version

        .. seealso:: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
        """
        preconditions = {"uid": uid}
        if resource_version is not None:
            preconditions["resourceVersion"] = resource_version
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            **(options or {}),
            "preconditions": preconditions,
        }
        return await self._transport.request(
            "DELETE", _POD, {"namespace": namespace, "name": name}, body=body, accept=METADATA
        )


_SCALARS = {"int": "a whole number, without quotes", "bool": "true or false, without quotes", "str": "a text"}
"""By their names in the client's models, as they are written in JSON."""

_WORDS = {"propagation_policy": ("Background", "Foreground", "Orphan")}
"""Allowed values of options that do not take any text."""


def delete_options(arguments: Mapping[str, Any]) -> Json:
    """
    Turn ``[kubernetes_executor] delete_option_kwargs`` into fields of ``v1.DeleteOptions``.

    :param arguments: by the Python client's names, such as ``grace_period_seconds``
    :raises ValueError: if there is no such option, or a value is of another type or not one of its words
    """
    from kubernetes_asyncio.client import V1DeleteOptions  # noqa: PLC0415

    model: Any = V1DeleteOptions  # its type stub leaves out the maps
    names: Mapping[str, str] = model.attribute_map
    types: Mapping[str, str] = model.openapi_types
    if unknown := sorted(set(arguments) - set(names)):
        raise ValueError(
            f"[kubernetes_executor] delete_option_kwargs: {', '.join(unknown)} not known; "
            f"allowed are {', '.join(sorted(names))}"
        )
    for name, value in arguments.items():
        words = _WORDS.get(name)
        is_of_type = types[name] not in _SCALARS or type(value).__name__ == types[name]
        # The API server would answer 500 to each deletion, or 422.
        if value is not None and not (value in words if words else is_of_type):
            raise ValueError(
                f"[kubernetes_executor] delete_option_kwargs: {name} = {value!r} cannot be used; "
                f"allowed is: {', '.join(words) if words else _SCALARS[types[name]]}"
            )
    return {names[name]: value for name, value in arguments.items()}


def _collection(namespace: str | None) -> tuple[str, dict[str, str]]:
    return (_ALL_PODS, {}) if namespace is None else (_PODS, {"namespace": namespace})


def _event(line: Json) -> WatchEvent:
    type_, object_ = line.get("type"), line.get("object")
    if type_ == "ERROR":
        # https://kubernetes.io/docs/reference/using-api/api-concepts/#410-gone-responses
        code = object_.get("code") if isinstance(object_, dict) else None
        raise error_from_status(code if isinstance(code, int) else 500, object_, text="error in watch")
    if type_ not in _EVENTS:
        # Of a proxy. Taken for an event, the next watch would follow at once, and so on.
        raise ForeignAnswerError("not an event")
    return WatchEvent(type_, object_ if isinstance(object_, dict) else {})
