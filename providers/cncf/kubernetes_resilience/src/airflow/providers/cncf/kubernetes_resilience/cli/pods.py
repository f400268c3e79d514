# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pods that a user asks about, from the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.manifests import read_manifest
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import NOT_DONE
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import make_client
from airflow.providers.cncf.kubernetes_resilience.pods.facts import MalformedPodError, PodFacts, read_pod

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor

_PAGE = 500
"""Pods of one answer, as of ``kubectl get``."""


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
    return read_manifest(json.loads(response.data), f"pod {namespace}/{name}")


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
