# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze build-docs``: one site from the pages in docs/, the provider's own, and what is generated."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from breeze.newsfragments import changelog_with_news
from breeze.paths import BUILD, CORE, PROVIDER, ROOT
from breeze.provider_info import load_provider_yaml
from breeze.steps import console, run_program, run_tool

_SITE = ROOT / "site"
_SOURCE = BUILD / "docs-source"
#: A program that is installed beside Python: https://lychee.cli.rs
_LYCHEE = Path(sys.executable).parent / "lychee"


def build_site(*, external_links: bool = False) -> int:
    """Build the site, and check its links and those of the pages that are read in the repository.

    The sources are brought together in one folder first, because Sphinx reads only one.

    :param external_links: whether other sites are asked too, which takes a network, and minutes.
    :returns: the exit code of what writes pages from code, else that of Sphinx, which is not 0 if there was
        any warning, else that of the check.
    """
    shutil.rmtree(_SOURCE, ignore_errors=True)
    shutil.rmtree(_SITE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", _SOURCE)
    for name in ("README.md", "CONTRIBUTING.md"):
        # In there, the pages of the site are beside it.
        text = (ROOT / name).read_text().replace("](docs/", "](").replace("```sh ci", "```sh")
        (_SOURCE / name.lower()).write_text(text)
    provider_pages = _SOURCE / "provider"
    shutil.copytree(PROVIDER / "docs", provider_pages)
    (provider_pages / "configurations-ref.md").write_text(render_configuration(load_provider_yaml()))
    (provider_pages / "changelog.rst").write_text(changelog_with_news(PROVIDER))
    (provider_pages / "changelog-core.rst").write_text(changelog_with_news(CORE))
    exit_code = run_tool("breeze.policy_pages", _SOURCE) or _run_sphinx(_SOURCE, _SITE)
    if exit_code == 0:
        console.print("The site is in site/index.html")
        exit_code = check_links(*ROOT.glob("*.md"), _SITE, external=external_links)
    return exit_code


def check_links(*pages: Path, external: bool = False) -> int:
    """Check that what links lead to is there, with the headings that they name.

    :param pages: files in Markdown or HTML, or folders of them.
    :param external: whether other sites are asked too.
    :returns: not 0 if anything is missing.
    """
    options = ["--include-fragments", "--no-progress", *([] if external else ["--offline"])]
    return run_program([_LYCHEE, *options, *pages])


def _run_sphinx(source: Path, target: Path) -> int:
    doctrees = BUILD / "doctrees"
    return run_program(
        [
            sys.executable,
            "-m",
            "sphinx",
            "--fail-on-warning",
            "--keep-going",
            "-q",
            "-d",
            doctrees,
            source,
            target,
        ]
    )


def render_configuration(provider: dict[str, Any]) -> str:
    """Render the reference of the options in provider.yaml.

    :param provider: the contents of provider.yaml.
    :returns: a page in Markdown.
    """
    parts = ["# Configuration reference\n"]
    for section, content in provider["config"].items():
        parts += [f"## [{section}]\n", _as_markdown(content["description"])]
        parts += [_render_option(section, name, option) for name, option in content["options"].items()]
    return "\n".join(parts)


def _render_option(section: str, name: str, option: dict[str, Any]) -> str:
    facts = {
        "Type": option["type"],
        "Default": option["default"],
        "Example": option["example"],
        "Since": option["version_added"],
        "Environment variable": f"AIRFLOW__{section.upper()}__{name.upper()}",
    }
    rows = "".join(f"| {fact} | `{value}` |\n" for fact, value in facts.items() if value is not None)
    return f"### {name}\n\n{_as_markdown(option['description'])}\n| | |\n|---|---|\n{rows}"


def _as_markdown(description: str) -> str:
    """Airflow wants descriptions in reStructuredText; code is all the markup that ours use."""
    return description.replace("``", "`")
