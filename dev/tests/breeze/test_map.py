# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The map in docs/architecture.md is complete, and what it names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from breeze.paths import CORE, PROVIDER_PACKAGE, ROOT

SECTION = re.split(r"^## ", (ROOT / "docs" / "architecture.md").read_text(), flags=re.MULTILINE)
MAP, WAYS = next(text for text in SECTION if text.startswith("The map\n")).split("\n### ", maxsplit=1)

SOURCES = (CORE / "src" / "airflow_resilience", PROVIDER_PACKAGE)
FOLDERS = (ROOT, CORE / "src", PROVIDER_PACKAGE, PROVIDER_PACKAGE / "executors")
"""Paths in the text are relative to one of these."""


def named_in(tree: str) -> Iterator[Path]:
    """Read an indented tree: each line has names, two spaces or more, and what they are for."""
    above: list[tuple[int, Path]] = [(-1, ROOT)]
    for line in filter(None, tree.splitlines()):
        depth = len(line) - len(line.lstrip())
        while above[-1][0] >= depth:
            above.pop()
        names, *_ = re.split(r"\s{2,}", line.strip())
        paths = [above[-1][1] / name for name in names.split(", ")]
        above.append((depth, paths[0]))
        yield from paths


NAMED = list(named_in(MAP.split("```")[1]))


@pytest.mark.parametrize("path", NAMED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_the_map_names_exists(path):
    assert path.exists()


def test_the_map_names_no_path_twice():
    assert len(NAMED) == len(set(NAMED))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_map_names_every_module(source):
    modules = {path for path in source.rglob("*.py") if path.name != "__init__.py"}
    assert modules - set(NAMED) == set()


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`([\w-]+/[\w./-]*)`", WAYS))))
def test_a_place_on_the_ways_exists(place):
    assert any((folder / place).exists() for folder in FOLDERS)


@pytest.mark.parametrize("function", sorted(set(re.findall(r"`(\w+)\(\)`", WAYS))))
def test_a_function_on_the_ways_exists(function):
    modules = (path.read_text() for source in SOURCES for path in source.rglob("*.py"))
    assert any(re.search(rf"\bdef {function}\(", module) for module in modules)
