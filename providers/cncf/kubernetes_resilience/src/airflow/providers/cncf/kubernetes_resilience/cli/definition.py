# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The commands of ``airflow kubernetes-resilience`` and their options.

Every call of ``airflow`` imports this module, which therefore imports only definitions: Airflow's own, and
those in ``arguments.py``. Each command has its imports at its run.
"""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import (
    ARG_BUNDLE_NAME,
    ARG_DAG_ID,
    ARG_LOGICAL_DATE,
    ARG_OUTPUT,
    ARG_OUTPUT_PATH,
    ARG_TASK_ID,
    ARG_VERBOSE,
    ActionCommand,
    Arg,
    GroupCommand,
    lazy_load_command,
)

from airflow.providers.cncf.kubernetes_resilience.cli.arguments import EXPLAIN, LINT, SHOW, Command

_COMMANDS = "airflow.providers.cncf.kubernetes_resilience.cli.commands"


def _argument(*flags: str, **options: Any) -> Arg:
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


def _command(name: str, *args: Arg, **texts: Any) -> ActionCommand:
    function = lazy_load_command(f"{_COMMANDS}.{name.replace('-', '_')}")
    return ActionCommand(name=name, func=function, args=(*args, ARG_VERBOSE), **texts)


def _shared(name: str, command: Command, *more: Arg) -> ActionCommand:
    """Describe a shared command for Airflow. ``more`` are options that need Airflow."""
    args = (_argument(*flags, **options) for flags, options in command.args)
    return _command(
        name, *more, *args, help=command.help, description=command.description, epilog=command.epilog
    )


_POLICY_COMMANDS = (
    _shared("lint", LINT),
    _shared(
        "show",
        SHOW,
        _argument("--dag", metavar="DAG_ID", help="with --task: what is in force for one task"),
        _argument("--task", metavar="TASK_ID", help="with --dag: what is in force for one task"),
        ARG_OUTPUT,
    ),
)

_COMMANDS_OF_GROUP = (
    GroupCommand(name="policy", help="Check and show retry policies", subcommands=_POLICY_COMMANDS),
    _shared(
        "explain",
        EXPLAIN,
        _argument("name", nargs="?", help="name of a pod in the cluster; or -, like --file -"),
        _argument("-n", "--namespace", help="namespace of the pod. Default: that of the executor's pods"),
        _argument(
            "-f",
            "--file",
            help="a manifest, or a list of them, as JSON or YAML; - for standard input:\n"
            "kubectl get pod NAME -o json | airflow kubernetes-resilience explain -",
        ),
        ARG_OUTPUT,
    ),
    _command(
        "history",
        ARG_DAG_ID,
        _argument("run_id", help="The id of the Dag run"),
        ARG_TASK_ID,
        _argument("--map-index", type=int, help="only this mapped task instance. Default: each"),
        _argument("--try", dest="try_number", metavar="N", type=int, help="only this try. Default: each"),
        ARG_OUTPUT,
        help="List the failed launches and infrastructure retries of a task: pods, nodes, reasons, decisions",
        description=(
            "List the worker pods that a task has lost, before it started (phase launch) or while it ran\n"
            "(phase execution), as the ledger in Airflow's audit log has them."
        ),
    ),
    _command(
        "report",
        _argument("--days", type=int, default=7, help="how far to go back, 92 at most. Default: 7"),
        _argument("--dag", metavar="DAG_ID", help="only failures of this Dag"),
        ARG_OUTPUT,
        help="Count the worker pods that were lost, by cause, node and Dag, and what became of them",
        description=(
            "Count the worker pods that tasks have lost, before they started and while they ran, as the\n"
            'page "Infrastructure failures" does: how many were launched again at no cost, what became of\n'
            "these, how often a budget had run out, and which causes, nodes and Dags they were."
        ),
    ),
    _command(
        "generate-dag-yaml",
        ARG_DAG_ID,
        ARG_LOGICAL_DATE,
        ARG_BUNDLE_NAME,
        ARG_OUTPUT_PATH,
        _argument("--team", help="the team whose executors and configuration launch them"),
        help="Write the pod of each task of a Dag to a file, as this executor would launch it",
        description=(
            "Write a file for each task of a Dag: its pod as this executor would launch it first, also with\n"
            "the template, override and options in the task's executor_config. It has the words of `airflow\n"
            "kubernetes generate-dag-yaml`, which shows pods of the official executor, and writes to the\n"
            "same folder. What is not known before the launch, and the token, is set-at-launch, or zeros."
        ),
        epilog=(
            "exit codes:\n  0  the files are written; tasks of other executors are left out, and named\n"
            "  2  there is no file; the reason is on stderr\n"
        ),
    ),
    _command(
        "build-provider-wheel",
        _argument(
            "--from",
            dest="official",
            metavar="WHEEL",
            required=True,
            help="the official wheel, as in the package index:\n"
            "pip download --no-deps apache-airflow-providers-cncf-kubernetes==VERSION",
        ),
        _argument(
            "--output",
            dest="folder",
            metavar="DIR",
            default=".",
            help="where to put the new one. Default: .",
        ),
        help="Make a wheel of the official provider in which KubernetesExecutor is this executor",
        description=(
            "Make a wheel of the official provider with this executor in the place of the official one, so\n"
            "that executor = KubernetesExecutor can stay as it is. It is for images of your own: its name\n"
            "and most of its content are the Apache Software Foundation's, so do not publish it as theirs."
        ),
        epilog=(
            "exit codes:\n  0  the wheel is made; its path is on stdout\n"
            "  2  it is not; the reason is on stderr\n"
        ),
    ),
)


def get_cli_commands() -> list[GroupCommand]:
    """Return the commands of this provider, for Airflow."""
    return [
        GroupCommand(
            name="kubernetes-resilience",
            help="Tools to help with lost worker pods and retry policies",
            subcommands=_COMMANDS_OF_GROUP,
        )
    ]
