# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pages of the site that are made from the code that they are about.

A program of its own, ``python -m breeze.policy_pages FOLDER``: what it imports loads Airflow, which reads its
configuration from ``AIRFLOW_HOME``, and creates that, when it is imported.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow.cli.cli_config import ActionCommand, GroupCommand

    from airflow.providers.cncf.kubernetes_resilience.cli.arguments import Command
    from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import Cause

_HELP_WIDTH = 90

_CAUSES_HEAD = """\
# Causes of a failed pod

How a failed pod is classified. The rows are gone through from top to bottom, and the first that applies is
the cause. What took a pod away comes first, and what its containers ended with last: whoever takes a pod away
makes its containers fail too.

Every reason that Kubernetes' own components, containerd, CRI-O and Docker give a pod or a container has a
row. There is none for what no pod shows. Karpenter, the descheduler and the cluster autoscaler evict pods
through the API (`evicted-by-api`) or delete them (`deleted`). An admission plug-in refuses the call that
creates a pod. What keeps a sandbox from being set up, or a volume from being mounted, most often stands in
the pod's events only (`container-creating`). CRI-O shows exit code 255 and `Error` for a container whose end
it has missed, as after a restart of its node, and so does any program.

The name of the cause is the tag `cause` of the metric `kubernetes_executor.pod_launch_failures`; category and
reason are what `onCategories` and `onReasons` of a [retry policy](policies.md) are compared with. After
failures that are node-bound, launches prefer [other nodes](operate.md#nodes-that-are-bad).

| cause | category | reason | |
|---|---|---|---|
"""

_COMMAND_LINE_HEAD = """\
# Command line

`airflow kubernetes-resilience` knows the configuration, the metadata database and the cluster.
Each call starts Airflow, which takes seconds.

`airflow-resilience` is the same code without Airflow and its database, for what a file or a pipe
holds: the same output and exit codes, in less than half a second. It reads the same environment
variables and the same `airflow.cfg`, and where there is none it says so on stderr. With an
`airflow.cfg` that cannot be read, Airflow itself does not start and ends with 1, which `explain`
uses for an answer; the quick form ends with 2.

`kubectl airflow-explain` is the same for a pod of the cluster, which `kubectl` reads, with the
rights of whoever calls it. `kubectl` finds this plugin on `PATH`, in the `bin` folder of the
environment that the provider is installed in.
"""


def write_pages(folder: Path) -> None:
    """Write all pages.

    :param folder: where the sources of the site are.
    """
    from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
    from airflow.providers.cncf.kubernetes_resilience.cli.quick import COMMANDS, PLUGIN
    from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
    from breeze.policy_reference import render_reference

    (folder / "policy-reference.md").write_text(render_reference())
    (folder / "causes.md").write_text(render_causes(TABLE))
    quick = {f"airflow-resilience {name}": item.command for name, item in COMMANDS.items()}
    quick["kubectl airflow-explain"] = PLUGIN.command
    (folder / "command-line.md").write_text(render_command_line(get_cli_commands(), quick))


def render_causes(table: Iterable[Cause]) -> str:
    """Render the reference of the causes.

    :param table: the rows, in order of precedence.
    :returns: a page in Markdown.
    """
    return _CAUSES_HEAD + "".join(map(_render_cause, table))


def _render_cause(cause: Cause) -> str:
    when = "Of launches only. " if cause.launch_only else ""
    where = "Node-bound. " if cause.node_bound else ""
    why = f"{when}{where}{_cell(cause.why)} [more]({cause.url})"
    return f"| `{cause.name}` | `{cause.category}` | `{cause.reason}` | {why} |\n"


def render_command_line(
    commands: Iterable[GroupCommand | ActionCommand], quick: Mapping[str, Command]
) -> str:
    """Render the reference of the commands.

    :param commands: those that the provider adds to ``airflow``.
    :param quick: those that do without it, by the words that they are called with.
    :returns: a page in Markdown.
    """
    named: list[tuple[str, ActionCommand | Command]] = [*_flat("airflow", commands), *quick.items()]
    return _COMMAND_LINE_HEAD + "".join(
        f"\n## {name}\n\n{command.help}\n\n```text\n{_usage(name, command)}```\n" for name, command in named
    )


def _flat(
    prefix: str, commands: Iterable[GroupCommand | ActionCommand]
) -> Iterator[tuple[str, ActionCommand]]:
    for command in commands:
        name = f"{prefix} {command.name}"
        if hasattr(command, "subcommands"):
            yield from _flat(name, cast("GroupCommand", command).subcommands)
        else:
            yield name, command


def _usage(name: str, command: ActionCommand | Command) -> str:
    parser = argparse.ArgumentParser(
        prog=name,
        description=command.description,
        epilog=command.epilog,
        # The width of whatever terminal this runs in is no matter of the page.
        formatter_class=lambda prog: argparse.RawTextHelpFormatter(prog, width=_HELP_WIDTH),
    )
    for argument in command.args:
        argument.add_to_parser(parser)
    return parser.format_help()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
