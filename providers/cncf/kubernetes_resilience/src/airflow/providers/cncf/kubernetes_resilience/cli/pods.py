# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod that a user asks about, from the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.manifests import read_manifest
from airflow.providers.cncf.kubernetes_resilience.executors.settings import REQUEST_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import CLIENT_TIMEOUT, make_client
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


def from_cluster(name: str, namespace: str | None, kube_config: KubeConfig) -> PodFacts:
    """
    Ask the API server for one pod.

    :param namespace: None for that of the executor's pods
    :raises CommandError: if it cannot be read
    """
    namespace = namespace or kube_config.executor_namespace
    # The other arguments have no effect in the scheduler either. This call would not take each of them.
    limit = kube_config.kube_client_request_args.get(REQUEST_TIMEOUT) or CLIENT_TIMEOUT
    what = f"pod {namespace}/{name}"
    with _asking_for(what):
        response = make_client(None).read_namespaced_pod(
            name, namespace, _preload_content=False, _request_timeout=limit
        )
        manifest = json.loads(response.data)
    return read_manifest(manifest, what)


@contextmanager
def _asking_for(what: str) -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        raise CommandError(f"{what}: {error.status} {error.reason}") from error
    except (HTTPError, OSError) as error:
        raise CommandError(f"the Kubernetes API server does not answer: {error}") from error
    except Exception as error:
        # A kubeconfig may be anything, so may what the deployment's own client raises, or a proxy answers.
        raise CommandError(f"{what} cannot be read: {type(error).__name__}: {error}") from error
