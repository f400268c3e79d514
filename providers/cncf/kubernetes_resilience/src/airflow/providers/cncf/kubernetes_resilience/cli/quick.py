# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``airflow-resilience`` and ``kubectl airflow-explain``: commands without Airflow and its database.

The configuration is the same as for the commands of ``airflow``. A missing ``airflow.cfg``, as on the machine
of a ``kubectl`` user, is reported on stderr.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawTextHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from configparser import ConfigParser
from configparser import Error as ParserError
from pathlib import Path
from typing import Final, NamedTuple

from airflow.providers.cncf.kubernetes_resilience.cli import answers, manifests
from airflow.providers.cncf.kubernetes_resilience.cli.arguments import EXPLAIN, LINT, SHOW, Command, argument
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError, run_command
from airflow.providers.cncf.kubernetes_resilience.cli.explanation import from_pod
from airflow.providers.cncf.kubernetes_resilience.get_provider_info import get_provider_info
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


def _show(args: Namespace) -> int:
    return answers.show(args.output, answers.read_policies_of(_read_configuration(), args.policy))


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
    # The command is a list, without a shell that would interpret names.
    command = [program, "get", "pod", "--output=json", *options, "--", args.name]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603
    if done.returncode:
        raise CommandError(f"kubectl gives no pod {args.name}")
    return done.stdout


_OUTPUT: Final = argument(
    "-o",
    "--output",
    choices=("table", "json", "yaml", "plain"),
    default="table",
    metavar="(table, json, yaml, plain)",
    help="Output format. Default: table",
)


class Quick(NamedTuple):
    """A command and its function."""

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
        Command(help="Show retry policies, and where they come from", args=(*SHOW.args, _OUTPUT)), _show
    ),
}
"""Commands of ``airflow-resilience``."""

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


class Configuration:
    """
    Reads environment variables and airflow.cfg as Airflow's configuration does, for options without a
    deprecated name.

    Values from commands and secrets backends are for sensitive options only, of which none is asked for.

    :raises CommandError: if an existing airflow.cfg cannot be read; an empty path is the working directory

    .. seealso:: https://airflow.apache.org/docs/apache-airflow/stable/howto/set-config.html
    """

    def __init__(self) -> None:
        in_home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow"), "airflow.cfg")
        self.file: Final = Path(_expand(os.environ.get("AIRFLOW_CONFIG", str(in_home))))
        self._parser = ConfigParser()
        self._parser.optionxform = str  # type: ignore[assignment,method-assign]
        self.has_file: Final = self._read()

    def _read(self) -> bool:
        try:
            # The parser's own method would ignore a file that cannot be read.
            self._parser.read_string(self.file.read_text(encoding="utf-8"), str(self.file))
        except FileNotFoundError:
            return False
        except (OSError, ParserError, UnicodeDecodeError) as error:
            raise CommandError(f"{self.file}: {error}") from error
        return True

    def get(self, section: str, key: str, fallback: str = "") -> str:
        """
        Return the configured value, else our provider's default, else the fallback.

        :raises CommandError: if the value in airflow.cfg cannot be read
        """
        value = os.environ.get(f"AIRFLOW__{section.upper()}__{key.upper()}")
        try:
            value = self._parser.get(section, key, fallback=None) if value is None else value
        except ParserError as error:
            raise CommandError(f"{self.file}: {error}") from error
        if value is not None:
            return _expand(value)
        option = get_provider_info()["config"].get(section, {}).get("options", {}).get(key)
        return str(option["default"] or "") if option else fallback


def _expand(text: str) -> str:
    """Expand variables and home folders repeatedly, as Airflow does."""
    expanded = os.path.expanduser(os.path.expandvars(text))  # noqa: PTH111 - an option need not be a path
    return text if expanded == text else _expand(expanded)
