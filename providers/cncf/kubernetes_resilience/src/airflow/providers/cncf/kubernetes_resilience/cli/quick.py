# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``airflow-resilience`` and ``kubectl airflow-explain``: what needs neither Airflow nor its database.

They read the same configuration as the other form of these commands. Where there is no ``airflow.cfg``, as on
the machine of somebody with ``kubectl``, that is told on stderr.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawTextHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from airflow.providers.cncf.kubernetes_resilience.cli import answers, manifests
from airflow.providers.cncf.kubernetes_resilience.cli.arguments import (
    EXPLAIN,
    LINT,
    SHOW,
    Command,
    argument,
)
from airflow.providers.cncf.kubernetes_resilience.cli.circumstances import from_pod
from airflow.providers.cncf.kubernetes_resilience.cli.configuration import Configuration
from airflow.providers.cncf.kubernetes_resilience.cli.effective import EffectivePolicies
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError, run_command
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


def _show(args: Namespace) -> int:
    policies = answers.read_policies_of(_read_configuration(), args.policy)
    return answers.show(EffectivePolicies(policies), args.output)


def _explain(args: Namespace) -> int:
    file = answers.find_file(args)
    if file is None:
        raise CommandError(
            f"{args.name}: only - or a file is read here; for a pod of the cluster there are"
            " kubectl airflow-explain and airflow kubernetes-resilience explain"
        )
    return _explain_found(args, manifests.from_file(file))


def _explain_of_kubectl(args: Namespace) -> int:
    return _explain_found(args, manifests.from_content(_ask_kubectl(args), "kubectl"))


def _explain_found(args: Namespace, found: Iterable[PodFacts]) -> int:
    return answers.explain_all([(facts, from_pod(facts)) for facts in found], _read_configuration(), args)


def _read_configuration() -> Configuration:
    configuration = Configuration()
    if not configuration.has_file:
        sys.stderr.write(
            f"there is no {configuration.file}: what no variable AIRFLOW__SECTION__KEY says has its default\n"
        )
    return configuration


def _ask_kubectl(args: Namespace) -> bytes:
    program = shutil.which("kubectl")
    if program is None:
        raise CommandError("there is no kubectl on PATH")
    stated = {name: getattr(args, name) for name in ("namespace", "context", "kubeconfig")}
    options = [f"--{name}={value}" for name, value in stated.items() if value is not None]
    # As a list, without a shell: a name is a name.
    command = [program, "get", "pod", "--output=json", *options, "--", args.name]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603
    if told.returncode:
        raise CommandError(f"kubectl gives no pod {args.name}")
    return told.stdout


_OUTPUT: Final = argument(
    "-o",
    "--output",
    choices=("table", "json", "yaml", "plain"),
    default="table",
    metavar="(table, json, yaml, plain)",
    help="Output format. Default: table",
)


class Quick(NamedTuple):
    """A command, and what runs it."""

    command: Command
    run: Callable[[Namespace], int]


COMMANDS: Final = {
    "explain": Quick(
        EXPLAIN._replace(
            args=(
                argument("name", nargs="?", metavar="-", help="like --file -"),
                argument(
                    "-f",
                    "--file",
                    help="a manifest, or a list of them, as JSON or YAML; - for standard input:\n"
                    "kubectl get pod NAME -o json | airflow-resilience explain -",
                ),
                *EXPLAIN.args,
                _OUTPUT,
            )
        ),
        _explain,
    ),
    "lint": Quick(LINT, answers.lint),
    "show": Quick(
        Command(help="Show retry policies, and where they come from", args=(*SHOW.args, _OUTPUT)),
        _show,
    ),
}
"""Those of ``airflow-resilience``."""

PLUGIN: Final = Quick(
    EXPLAIN._replace(
        args=(
            argument("name", help="name of a pod"),
            argument("-n", "--namespace", help="namespace of the pod. Default: that of the context"),
            argument("--context", help="a context of the kubeconfig. Default: the current one"),
            argument("--kubeconfig", metavar="FILE", help="Default: as kubectl finds it"),
            *EXPLAIN.args,
            _OUTPUT,
        )
    ),
    _explain_of_kubectl,
)
"""``kubectl airflow-explain``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run ``airflow-resilience``.

    :returns: its exit code
    """
    parser = ArgumentParser(
        "airflow-resilience", description="Retry policies, without Airflow and its database"
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, quick in COMMANDS.items():
        _describe(subparsers.add_parser(name, help=quick.command.help), quick)
    return _run(parser, arguments)


def run_plugin(arguments: Sequence[str] | None = None) -> int:
    """
    Run ``kubectl airflow-explain``.

    :returns: its exit code
    """
    parser = ArgumentParser("kubectl airflow-explain")
    _describe(parser, PLUGIN)
    return _run(parser, arguments)


def _describe(parser: ArgumentParser, quick: Quick) -> None:
    parser.description = quick.command.description or quick.command.help
    parser.epilog = quick.command.epilog
    parser.formatter_class = RawTextHelpFormatter
    parser.set_defaults(run=quick.run)
    for item in quick.command.args:
        item.add_to_parser(parser)


def _run(parser: ArgumentParser, arguments: Sequence[str] | None) -> int:
    def run() -> int:
        args = parser.parse_args(arguments)
        code: int = args.run(args)
        return code

    return run_command(run)
