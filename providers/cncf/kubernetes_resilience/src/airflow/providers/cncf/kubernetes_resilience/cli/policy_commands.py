# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience policy``: is a file right, and what is in force."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from airflow.cli.simple_table import AirflowConsole
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.cli.commands import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.configured import read_configured_policies
from airflow.providers.cncf.kubernetes_resilience.cli.effective import EffectivePolicies
from airflow.providers.cncf.kubernetes_resilience.cli.output import print_data
from airflow.providers.cncf.kubernetes_resilience.cli.policy_view import show_policies
from airflow.providers.cncf.kubernetes_resilience.cli.serialized_tasks import read_task
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.vocabulary import VOCABULARY
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import read_policies


def lint(args: Namespace) -> int:
    """Check a policy file."""
    # The settings of the built-in policy do not matter: a file can only name it.
    policies = read_policies(Path(args.file), built_in(0, ()), VOCABULARY)
    for warning in policies.warnings:
        sys.stderr.write(f"{warning}\n")
    names = ", ".join(policies.policies)
    AirflowConsole().print(
        f"{args.file}: valid; policies: {names}; default: {policies.default}", markup=False, soft_wrap=True
    )
    return 0


def show(args: Namespace) -> int:
    """Show the policies in force."""
    if bool(args.dag) != bool(args.task):
        raise CommandError("--dag and --task are needed together")
    policies, task = read_configured_policies(), None
    if args.dag:
        with create_session() as session:
            task = read_task(args.dag, args.task, session=session)
    effective = EffectivePolicies(policies, task)
    if args.output == "table":
        show_policies(AirflowConsole(), effective)
    else:
        print_data(effective.to_dict(), args.output)
    return 0
