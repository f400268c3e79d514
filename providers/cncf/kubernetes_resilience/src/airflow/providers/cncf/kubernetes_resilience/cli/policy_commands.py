# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience policy show``: what is in force, also for one task."""

from __future__ import annotations

from argparse import Namespace

from airflow.configuration import conf
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.cli import answers
from airflow.providers.cncf.kubernetes_resilience.cli.effective import EffectivePolicies
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.serialized_tasks import read_task


def show(args: Namespace) -> int:
    """Show the policies in force."""
    if bool(args.dag) != bool(args.task):
        raise CommandError("--dag and --task are needed together")
    policies, task = answers.read_policies_of(conf, args.policy), None
    if args.dag:
        with create_session() as session:
            task = read_task(args.dag, args.task, session=session)
    return answers.show(EffectivePolicies(policies, task), args.output)
