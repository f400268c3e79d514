# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the map in docs/architecture.md and the glossary name exists, and the map is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from breeze.paths import CORE, PROVIDER, PROVIDER_PACKAGE, ROOT

SECTION = re.split(r"^## ", (ROOT / "docs" / "architecture.md").read_text(), flags=re.MULTILINE)
MAP, WAYS = next(text for text in SECTION if text.startswith("The map\n")).split("\n### ", maxsplit=1)
PLACE = r"`([\w.-]+/[\w./-]*)`"

#: Each with its unit tests.
SOURCES = {CORE / "src" / "airflow_resilience": CORE / "tests", PROVIDER_PACKAGE: PROVIDER / "tests" / "unit"}
MODULES = [path for source in SOURCES for path in source.rglob("*.py")]
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


def test_what_the_map_names_exists_and_is_named_once():
    assert [path for path in NAMED if not path.exists()] == []
    assert len(NAMED) == len(set(NAMED))


def test_the_map_names_every_module():
    assert {path for path in MODULES if path.name != "__init__.py"} - set(NAMED) == set()


def test_places_that_texts_name_exist():
    places = re.findall(PLACE, WAYS + (ROOT / "docs" / "glossary.md").read_text())
    assert places
    assert [place for place in places if not any((folder / place).exists() for folder in FOLDERS)] == []


def test_functions_on_the_ways_exist():
    defined = {name for path in MODULES for name in re.findall(r"\bdef (\w+)\(", path.read_text())}
    named = set(re.findall(r"`(\w+)\(\)`", WAYS))
    assert named
    assert named - defined == set()


def test_unit_tests_lie_where_the_modules_lie():
    """A test with the name of a module is about that; others are about more than one, or about one side."""
    for package, tests in SOURCES.items():
        for test in tests.rglob("test_*.py"):
            name, place = test.name.removeprefix("test_"), package / test.parent.relative_to(tests)
            assert place.is_dir(), test
            assert (place / name).exists() or not list(package.rglob(name)), test
