# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Answers and exit codes of ``lint``, ``show`` and ``explain``, with Airflow or without.

An answer depends on its arguments: the policies, the pods, and the facts about their tasks.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from airflow.providers.cncf.kubernetes_resilience.cli.effective import describe, show_policies
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.explanation import Circumstances, explain
from airflow.providers.cncf.kubernetes_resilience.cli.explanation_view import show_explanation
from airflow.providers.cncf.kubernetes_resilience.cli.manifests import STANDARD_INPUT
from airflow.providers.cncf.kubernetes_resilience.cli.output import make_console, print_data, print_text
from airflow.providers.cncf.kubernetes_resilience.executors.policy_settings import (
    UPSTREAM_SECTION,
    read_policy_settings,
    words,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.vocabulary import VOCABULARY
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import PolicySource
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.rule import PolicySet
from airflow_resilience.retry_policy.selection import TaskProfile

GIVEN_UP_REASONS: Final = "worker_pod_pending_fatal_container_state_reasons"
GIVEN_UP_REASONS_OF_UPSTREAM: Final = (
    "CreateContainerConfigError,ErrImagePull,CreateContainerError,ImageInspectError,InvalidImageName"
)
"""The default of that option of the official executor. A contract test compares it."""


def lint(args: Namespace) -> int:
    """Check a policy file."""
    # The settings of the built-in policy do not matter: a file can only name it.
    policies = PolicySource(Path(args.file), built_in(0, ()), VOCABULARY).current
    for warning in policies.warnings:
        sys.stderr.write(f"{warning}\n")
    print_text(f"{args.file}: valid; policies: {', '.join(policies.policies)}; default: {policies.default}")
    return 0


def show(output: str, policies: PolicySet, task: TaskProfile | None = None) -> int:
    """Show the policies in force and their origin, or those of one task."""
    described = describe(policies, task)
    if output == "table":
        show_policies(make_console(), described)
    else:
        print_data(described, output)
    return 0


def explain_all(found: Iterable[tuple[PodFacts, Circumstances]], conf: Any, args: Namespace) -> int:
    """
    Explain each pod.

    :param conf: something with the method ``get()`` of Airflow's configuration
    :raises OptionError: if an option that policies depend on cannot be used
    :raises PolicyFileError: if the policy file cannot be used
    """
    policies, output = read_policies_of(conf, args.policy), args.output
    given_up = conf.get(UPSTREAM_SECTION, GIVEN_UP_REASONS, fallback=GIVEN_UP_REASONS_OF_UPSTREAM)
    explanations = [
        explain(
            facts,
            phase=Phase(args.phase) if args.phase else None,
            given_up_reasons=words(given_up),
            policies=policies,
            circumstances=circumstances,
        )
        for facts, circumstances in found
    ]
    if output in ("json", "yaml"):
        print_data([explanation.to_dict() for explanation in explanations], output)
    for explanation in explanations:
        if output == "plain":
            print_data(explanation.to_dict(), output)
        elif output == "table":
            show_explanation(make_console(), explanation)
    codes = {explanation.exit_code for explanation in explanations}
    return next((code for code in (1, 3) if code in codes), 0)


def find_file(args: Namespace) -> str | None:
    """
    Return the file whose pods are to be explained; None for a pod of the cluster.

    :raises CommandError: if neither is named, or both
    """
    if (args.name is None) == (args.file is None):
        raise CommandError("one of both is needed: a name, of which - is standard input, or --file")
    return STANDARD_INPUT if args.name == STANDARD_INPUT else args.file


def read_policies_of(conf: Any, path: str | None = None) -> PolicySet:
    """
    Read the policies that an executor would start with. Other options are ignored.

    :param conf: something with the method ``get()`` of Airflow's configuration
    :param path: another policy file than the configured one
    :raises OptionError: if an option that policies depend on cannot be used
    :raises PolicyFileError: if the file cannot be used
    """
    settings = read_policy_settings(conf)
    file = Path(path) if path else settings.retry_policy_file
    return PolicySource(file, settings.built_in).current if file else settings.built_in
