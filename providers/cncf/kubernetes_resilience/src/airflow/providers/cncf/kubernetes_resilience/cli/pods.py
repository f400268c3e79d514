# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod that a user asks about, from the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.manifests import read_manifest
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import make_client
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


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


@contextmanager
def _asking_for(what: str) -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        raise CommandError(f"{what}: {error.status} {error.reason}") from error
    except (ConfigException, HTTPError, OSError) as error:
        raise CommandError(f"the Kubernetes API server does not answer: {error}") from error
