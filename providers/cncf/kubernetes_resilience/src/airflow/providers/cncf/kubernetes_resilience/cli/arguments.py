# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The commands that both ``airflow kubernetes-resilience`` and ``airflow-resilience`` have, and their options.

Every call of ``airflow`` imports this module, which therefore imports nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Argument(NamedTuple):
    """An option, in the words of ``argparse``."""

    flags: tuple[str, ...]
    options: dict[str, Any]

    def add_to_parser(self, parser: ArgumentParser) -> None:
        """Add the option to a parser."""
        parser.add_argument(*self.flags, **self.options)


class Command(NamedTuple):
    """A command, in the words of ``argparse``."""

    help: str
    description: str | None = None
    epilog: str | None = None
    args: tuple[Argument, ...] = ()


def argument(*flags: str, **options: Any) -> Argument:
    """Return an option."""
    return Argument(flags, options)


_EXIT_CODES_OF_EXPLAIN = """\
exit codes:
  0  every pod is launched again ("relaunch")
  1  the failure of a pod counts against the task ("count"), or fails it for good ("fail")
  2  no answer: an option, a file or a manifest cannot be used, something does not answer, or the
     output cannot be written
  3  a pod has not failed
of several that apply: 2 before 1, 1 before 3
"""

_PHASES = """\
how far the task had come: its instance was still queued
(launch) or running (execution). Default: what the metadata
database, if it is asked, says about a pod of the cluster,
else launch; but then a pod that has succeeded has not failed,
while with --phase launch it ended without its worker having
reported"""

POLICY = argument("--policy", metavar="FILE", help="a policy file, instead of the configured one")

LINT = Command(
    help="Check a policy file",
    description=(
        "Check a policy file: a line for each mistake, with its place and what is allowed there, and\n"
        "one with the word warning for what can never match or never be reached."
    ),
    epilog=(
        "exit codes:\n  0  the file can be used; warnings are on stderr\n"
        "  2  it cannot; the mistakes are on stderr\n"
    ),
    args=(argument("file", help="the policy file"),),
)
SHOW = Command(
    help="Show the policies in force, or those of one task, and where they come from", args=(POLICY,)
)
EXPLAIN = Command(
    help="Explain what becomes of the task of a pod that failed, and why",
    description=(
        "Explain a pod: what is read from it, why it failed, which rule of which policy says what to\n"
        "do, and why the rules before it do not. Nothing is changed by that."
    ),
    epilog=_EXIT_CODES_OF_EXPLAIN,
    args=(argument("--phase", choices=("launch", "execution"), help=_PHASES), POLICY),
)
