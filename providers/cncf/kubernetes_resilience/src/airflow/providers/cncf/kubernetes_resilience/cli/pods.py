# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The manifests of the pods that a user asks about: from the cluster, from a file, from a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from airflow.providers.cncf.kubernetes_resilience.cli.commands import CommandError
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import NOT_DONE
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import make_client
from airflow.providers.cncf.kubernetes_resilience.pods.facts import MalformedPodError, PodFacts, read_pod

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

STANDARD_INPUT = "-"

_PAGE = 500
"""Pods of one answer, as of ``kubectl get``."""


class _ManifestLoader(yaml.SafeLoader):
    """Reads times as Kubernetes does: as text."""


_ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def from_cluster(name: str, namespace: str | None, kube_config: KubeConfig) -> PodFacts:
    """
    Ask the API server for one pod.

    :param namespace: None for that of the executor's pods
    :raises CommandError: if it cannot be read
    """
    namespace = namespace or kube_config.executor_namespace
    with _asking_for(f"pod {namespace}/{name}"):
        response = make_client(None).read_namespaced_pod(
            name, namespace, _preload_content=False, **kube_config.kube_client_request_args
        )
    return _read(json.loads(response.data), f"pod {namespace}/{name}")


def list_from_cluster(executor: KubernetesExecutor) -> Iterator[PodFacts]:
    """
    Ask the API server, page by page, for the worker pods of an executor with which none is done.

    Pods of other schedulers and executors may be among them: whoever adopted them last need not have put its
    label on them.

    :param executor: need not be started
    :raises CommandError: if they cannot be read
    """
    for namespace in executor.namespaces():
        with _asking_for(f"pods in {namespace or 'all namespaces'}"):
            client = make_client(executor.team_name)
            read = (
                partial(client.list_namespaced_pod, namespace)
                if namespace
                else client.list_pod_for_all_namespaces
            )
            yield from _pages(read, executor.kube_config.kube_client_request_args)


def _pages(read: Callable[..., Any], request_args: Mapping[str, Any]) -> Iterator[PodFacts]:
    token: str | None = ""
    while token is not None:
        response = read(
            label_selector=NOT_DONE,
            limit=_PAGE,
            _preload_content=False,
            **({"_continue": token} if token else {}),
            **request_args,
        )
        page = json.loads(response.data)
        yield from _readable(page["items"])
        token = page["metadata"].get("continue") or None


def _readable(manifests: Iterable[Any]) -> Iterator[PodFacts]:
    for manifest in manifests:
        with suppress(MalformedPodError):  # no executor can have created it
            yield read_pod(manifest)


@contextmanager
def _asking_for(what: str) -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        raise CommandError(f"{what}: {error.status} {error.reason}") from error
    except (ConfigException, HTTPError, OSError) as error:
        raise CommandError(f"the Kubernetes API server does not answer: {error}") from error


def from_file(name: str) -> list[PodFacts]:
    """
    Read the pods of a file: a manifest, or a list as ``kubectl get pods -o json`` prints it.

    :param name: path of a JSON or YAML file; ``-`` for standard input
    :raises CommandError: if there is no pod in it, or something else
    """
    source = "standard input" if name == STANDARD_INPUT else name
    try:
        text = sys.stdin.read() if name == STANDARD_INPUT else Path(name).read_text(encoding="utf-8")
        documents = _parse(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"{source}: {error}") from error
    pods = [_read(item, source) for document in documents for item in _items(document)]
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


def _read(manifest: Any, source: str) -> PodFacts:
    # The items of a PodList have no kind.
    kind = manifest.get("kind", "Pod") if isinstance(manifest, dict) else type(manifest).__name__
    if kind != "Pod":
        raise CommandError(f"{source}: a Pod is needed, not {kind}")
    try:
        return read_pod(manifest)
    except MalformedPodError as error:
        raise CommandError(f"{source}: {error}") from error
