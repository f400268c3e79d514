# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Every command that a page names exists, with the options that it is named with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from typer.main import get_command

from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
from airflow.providers.cncf.kubernetes_resilience.cli.quick import COMMANDS, PLUGIN
from breeze.cli import app
from breeze.paths import ROOT

PAGES = "\n".join(path.read_text() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def named(program: str) -> list[str]:
    """Return what follows a program's name, in a line of code or in a text."""
    return sorted({found.strip() for found in re.findall(rf"{re.escape(program)} ([^`#|\n]+)", PAGES)})


def breeze_options(words: list[str]) -> set[str] | None:
    """Return the options of the command that words begin with; None: whatever pytest takes."""
    command = get_command(app)
    while hasattr(command, "commands") and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    if command.context_settings.get("ignore_unknown_options"):
        return None
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


def airflow_options(words: list[str]) -> set[str]:
    commands = get_cli_commands()
    while True:
        (command,) = (command for command in commands if command.name == words[0])
        del words[0]
        if not hasattr(command, "subcommands"):
            return flags_of(command.args)
        commands = command.subcommands


def flags_of(arguments: Iterable[Any]) -> set[str]:
    return {flag for argument in arguments for flag in argument.flags}


def options_in(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith("-") and word.strip("-")}


@pytest.mark.parametrize("line", named("./breeze"))
def test_a_command_for_contributors_exists(line: str) -> None:
    words = re.findall(r"[\w-]+", line)
    known = breeze_options(words)
    assert known is None or options_in(words) <= known


@pytest.mark.parametrize("line", named("airflow kubernetes-resilience"))
def test_a_command_of_the_distribution_exists(line: str) -> None:
    words = ["kubernetes-resilience", *re.findall(r"[\w-]+", line)]
    assert options_in(words[1:]) <= airflow_options(words)


@pytest.mark.parametrize("line", named("airflow-resilience"))
def test_a_command_without_airflow_exists(line: str) -> None:
    name, *words = line.split()
    assert options_in(words) <= flags_of(COMMANDS[name].command.args)


@pytest.mark.parametrize("line", named("kubectl airflow-explain"))
def test_a_form_of_the_plugin_exists(line: str) -> None:
    assert options_in(line.split()) <= flags_of(PLUGIN.command.args)


def test_pages_name_commands() -> None:
    assert {"demo", "testing quick", "testing all"} <= set(named("./breeze"))
    assert "report" in named("airflow kubernetes-resilience")
    assert "lint retry-policies.yaml" in named("airflow-resilience")
    assert "POD" in named("kubectl airflow-explain")
