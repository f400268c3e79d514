# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience explain``: what is decided about a pod, and why."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Sequence

from airflow.cli.simple_table import AirflowConsole
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.cli import circumstances, pods
from airflow.providers.cncf.kubernetes_resilience.cli.circumstances import Circumstances
from airflow.providers.cncf.kubernetes_resilience.cli.commands import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.configured import read_configured_policies
from airflow.providers.cncf.kubernetes_resilience.cli.explanation import Explanation
from airflow.providers.cncf.kubernetes_resilience.cli.explanation import explain as explain_pod
from airflow.providers.cncf.kubernetes_resilience.cli.explanation_view import show_explanation
from airflow.providers.cncf.kubernetes_resilience.cli.output import print_data
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.retry_policy.evidence import Phase


def explain(args: Namespace) -> int:
    """Explain each pod that was asked about."""
    policies = read_configured_policies(args.policy)
    kube_config = KubeConfig()
    phase = Phase(args.phase) if args.phase else None
    found = _find_pods(args, phase, kube_config)
    explanations = [
        explain_pod(
            facts,
            phase=phase,
            given_up_reasons=kube_config.worker_pod_pending_fatal_container_state_reasons,
            policies=policies,
            circumstances=about,
        )
        for facts, about in found
    ]
    _print(explanations, args.output)
    return _exit_code({explanation.exit_code for explanation in explanations})


def _find_pods(
    args: Namespace, phase: Phase | None, kube_config: KubeConfig
) -> list[tuple[PodFacts, Circumstances]]:
    if (args.name is None) == (args.file is None):
        raise CommandError("name either a pod of the cluster or, with --file, a file")
    if args.file or args.name == pods.STANDARD_INPUT:
        if args.namespace:
            raise CommandError("--namespace is for a pod of the cluster, and a manifest has its own")
        found = pods.from_file(args.file or pods.STANDARD_INPUT)
        return [(facts, circumstances.from_pod(facts)) for facts in found]
    facts = pods.from_cluster(args.name, args.namespace, kube_config)
    return [(facts, circumstances.from_database(facts, phase))]


def _print(explanations: Sequence[Explanation], output: str) -> None:
    if output in ("json", "yaml"):
        print_data([explanation.to_dict() for explanation in explanations], output)
        return
    for explanation in explanations:
        if output == "plain":
            print_data(explanation.to_dict(), output)
        else:
            show_explanation(AirflowConsole(), explanation)


def _exit_code(codes: Collection[int]) -> int:
    return next((code for code in (1, 3) if code in codes), 0)
