# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience explain``: what is decided about a pod, and why."""

from __future__ import annotations

from argparse import Namespace

from airflow.configuration import conf
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.cli import answers, manifests, pods
from airflow.providers.cncf.kubernetes_resilience.cli.circumstances import Circumstances, from_pod
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.recorded import from_database
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.retry_policy.evidence import Phase


def explain(args: Namespace) -> int:
    """Explain each pod that was asked about."""
    return answers.explain_all(_find_pods(args), conf, args)


def _find_pods(args: Namespace) -> list[tuple[PodFacts, Circumstances]]:
    if (file := answers.find_file(args)) is not None:
        if args.namespace:
            raise CommandError("--namespace is for a pod of the cluster, and a manifest has its own")
        return [(facts, from_pod(facts)) for facts in manifests.from_file(file)]
    facts = pods.from_cluster(args.name, args.namespace, KubeConfig())
    return [(facts, from_database(facts, Phase(args.phase) if args.phase else None))]
