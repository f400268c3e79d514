# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Reads the manifests of pods from a file or from a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import MalformedPodError, PodFacts, read_pod

STANDARD_INPUT = "-"


class _ManifestLoader(yaml.SafeLoader):
    """Reads times as Kubernetes does: as text."""


_ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def from_file(name: str) -> list[PodFacts]:
    """
    Read the pods of a file: a manifest, or a list as ``kubectl get pods -o json`` prints it.

    :param name: path of a JSON or YAML file; ``-`` for standard input
    :raises CommandError: if there is no pod in it, or something else
    """
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise CommandError("standard input: it is closed")
        return from_content(sys.stdin.buffer.read(), "standard input")
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"{name}: {error}") from error
    return from_content(content, name)


def from_content(content: bytes, source: str) -> list[PodFacts]:
    """
    Read the pods of JSON or YAML, as :func:`from_file` does. The encoding is UTF-8 with any locale.

    :param source: where it is from, for an error
    :raises CommandError: if there is no pod in it, or something else
    """
    try:
        documents = _parse(content.decode())
    except Exception as error:  # yaml also raises errors of values: !!bool x is a KeyError
        raise CommandError(f"{source}: cannot be read: {error}") from error
    pods = [read_manifest(item, source) for document in documents for item in _items(document)]
    if not pods:
        raise CommandError(f"{source}: there is no pod in it")
    return pods


def _parse(text: str) -> list[Any]:
    try:
        return [json.loads(text)]  # much faster than YAML, and a list of pods may be long
    except ValueError:
        documents = yaml.load_all(text, _ManifestLoader)
        return [document for document in documents if document is not None]


def _items(document: Any) -> Iterator[Any]:
    """Yield the objects of a list, or the one object."""
    is_list = isinstance(document, dict) and str(document.get("kind", "")).endswith("List")
    if is_list and isinstance(items := document.get("items"), list):
        yield from items
    else:
        yield document


def read_manifest(manifest: Any, source: str) -> PodFacts:
    """
    Read a pod.

    :param source: where it is from, for an error
    :raises CommandError: if the manifest is no pod
    """
    # The items of a PodList have no kind.
    kind = manifest.get("kind", "Pod") if isinstance(manifest, dict) else type(manifest).__name__
    if kind != "Pod":
        raise CommandError(f"{source}: a Pod is needed, not {kind}")
    try:
        return read_pod(manifest)
    except MalformedPodError as error:
        raise CommandError(f"{source}: {error}") from error
