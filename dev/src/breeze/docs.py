# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze build-docs``: one site from the pages in docs/, the provider's own, and what is made from code."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breeze.paths import BUILD, CORE, PROVIDER, ROOT
from breeze.provider_info import provider_info
from breeze.steps import console, run_program, run_tool

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

DOCS = ROOT / "docs"
_SITE = ROOT / "site"
#: A program that is installed beside Python: https://lychee.cli.rs
_LYCHEE = Path(sys.executable).parent / "lychee"
#: The width of whatever terminal this runs in is no matter of a page.
_HELP_WIDTH = 90
#: towncrier writes a release below this line; it is its default for reStructuredText.
_RELEASES = ".. towncrier release notes start\n"


def build_site() -> int:
    """Build the documentation site into site/; a warning, or a link that leads nowhere, is an error."""
    source = BUILD / "docs-source"  # Sphinx reads one folder only.
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(_SITE, ignore_errors=True)
    shutil.copytree(DOCS, source)
    shutil.copytree(PROVIDER / "docs", source / "provider")
    for name in ("README.md", "CONTRIBUTING.md"):
        # In there, the pages of the site are beside it.
        text = (ROOT / name).read_text().replace("](docs/", "](").replace("```sh ci", "```sh")
        (source / name.lower()).write_text(text)
    for name, text in made_pages().items():
        (source / name).write_text(text)
    options = ["--fail-on-warning", "--keep-going", "-q", "-d", BUILD / "doctrees"]
    if exit_code := run_tool("sphinx", *options, source, _SITE):
        return exit_code
    console.print("The site is in site/index.html")
    options = ["--offline", "--include-fragments", "--no-progress"]
    return run_program([_LYCHEE, *options, *ROOT.glob("*.md"), _SITE])


def made_pages() -> dict[str, str]:
    """Make the pages that say what is in the code, by their names; docs/ has the beginnings of three."""
    return {
        "causes.md": (DOCS / "causes.md").read_text() + "".join(_causes()),
        "command-line.md": (DOCS / "command-line.md").read_text() + "".join(_commands()),
        "policy-reference.md": _policy_reference(),
        "provider/configurations-ref.md": "\n".join(_configuration()),
        "provider/changelog.rst": _changelog(PROVIDER, "docs/changelog.rst"),
        "provider/changelog-core.rst": _changelog(CORE, "CHANGELOG.rst"),
    }


def _causes() -> Iterator[str]:
    """Yield a row for each cause of a failed pod, in order of precedence."""
    from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE

    for cause in TABLE:
        when = "Of launches only. " * cause.launch_only + "Node-bound. " * cause.node_bound
        why = " ".join(cause.why.split()).replace("|", "\\|").replace("``", "`")
        row = f"`{cause.name}` | `{cause.category}` | `{cause.reason}` | {when}{why} [more]({cause.url})"
        yield f"| {row} |\n"


def _commands() -> Iterator[str]:
    """Yield what each command prints when it is asked for help."""
    from airflow.providers.cncf.kubernetes_resilience.cli.definition import get_cli_commands
    from airflow.providers.cncf.kubernetes_resilience.cli.quick import COMMANDS, PLUGIN

    named = dict(_in_full("airflow", get_cli_commands()))
    named |= {f"airflow-resilience {name}": item.command for name, item in COMMANDS.items()}
    named["kubectl airflow-explain"] = PLUGIN.command
    for name, command in named.items():
        parser = argparse.ArgumentParser(
            prog=name,
            description=command.description,
            epilog=command.epilog,
            formatter_class=lambda prog: argparse.RawTextHelpFormatter(prog, width=_HELP_WIDTH),
        )
        for argument in command.args:
            argument.add_to_parser(parser)
        yield f"\n## {name}\n\n{command.help}\n\n```text\n{parser.format_help()}```\n"


def _in_full(prefix: str, commands: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for command in commands:
        name = f"{prefix} {command.name}"
        if hasattr(command, "subcommands"):
            yield from _in_full(name, command.subcommands)
        else:
            yield name, command


def _policy_reference() -> str:
    """Put the table of its fields in the place of the name of each mapping of the policy file."""
    from airflow_resilience.retry_policy import schema

    page = (DOCS / "policy-reference.md").read_text()
    # A field whose value is such a mapping has a link to its section.
    titles = {
        name: title for title, name in re.findall(r"^## `(\w+)`\n\n<!-- (\w+) -->$", page, re.MULTILINE)
    }
    return re.sub("<!-- (.*) -->", lambda match: _fields(getattr(schema, match[1]), titles), page)


def _fields(model: type[BaseModel], titles: dict[str, str]) -> str:
    from airflow_resilience.retry_policy.fields import fields_of

    rows = [_row(name, field, titles) for name, field in fields_of(model).items()]
    head = "| field | allowed | default | meaning |\n|---|---|---|---|\n"
    return f"{cleandoc(model.__doc__ or '')}\n\n{head}" + "\n".join(rows)


def _row(name: str, field: FieldInfo, titles: dict[str, str]) -> str:
    from airflow_resilience.retry_policy.fields import allowed, model_in, type_of

    nested = model_in(type_of(field))
    title = titles[nested.__name__] if nested else ""
    values = f"see [`{title}`](#{title.lower()})" if nested else allowed(type_of(field))
    cells = (f"`{name}`", values, _default(field), " ".join((field.description or "").split()))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    """Return the default as a file would state it; nothing if the field's text explains the default."""
    from airflow_resilience.retry_policy.durations import format_duration
    from airflow_resilience.retry_policy.fields import Duration, type_of

    if field.is_required():
        return "**required**"
    match field.default:
        case None:
            return ""
        case Enum() as default:
            return f"`{default.value}`"
        case default if type_of(field) == Duration:
            return f"`{format_duration(default)}`"
        case default:
            return f"`{json.dumps(default)}`"


def _configuration() -> Iterator[str]:
    """Yield the options in provider.yaml. Code is all the markup that their descriptions use."""
    yield "# Configuration reference\n"
    for section, content in provider_info()["config"].items():
        yield f"## [{section}]\n"
        yield content["description"].replace("``", "`")
        for name, option in content["options"].items():
            facts = {
                "Type": option["type"],
                "Default": option["default"],
                "Example": option["example"],
                "Since": option["version_added"],
                "Environment variable": f"AIRFLOW__{section.upper()}__{name.upper()}",
            }
            rows = "".join(f"| {fact} | `{value}` |\n" for fact, value in facts.items() if value is not None)
            yield f"### {name}\n\n{option['description'].replace('``', '`')}\n| | |\n|---|---|\n{rows}"


def _changelog(project: Path, name: str) -> str:
    """Return a changelog with the news of the next release on top."""
    # A draft changes nothing: neither the changelog nor the fragments.
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version=Unreleased", "--date="]
    draft = subprocess.check_output(command, cwd=project, text=True)
    return (project / name).read_text().replace(_RELEASES, f"{_RELEASES}\n{draft}\n")
