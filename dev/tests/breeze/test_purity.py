# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What calls itself pure is held to it: by import-linter, and by the measure of coverage."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from breeze.paths import CORE, PROVIDER, ROOT

TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
(CONTRACT,) = (
    contract
    for contract in TOOLS["importlinter"]["contracts"]
    if contract["name"].startswith("what is called pure")
)
COVERED = {pattern: set(ROOT.glob(pattern)) for pattern in TOOLS["coverage"]["run"]["include"]}


def names_of_pure() -> Iterator[tuple[str, Path]]:
    """Read the docstrings; a package's is one about all of its modules."""
    for source in (CORE / "src", PROVIDER / "src"):
        for path in sorted(source.rglob("*.py")):
            docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
            if re.search(r"\bpure\b", docstring, re.IGNORECASE):
                place = path.relative_to(source).with_suffix("")
                yield ".".join(place.parts).removesuffix(".__init__"), path


PURE = dict(names_of_pure())


def test_there_are_some():
    assert len(PURE) > 10


@pytest.mark.parametrize("module", PURE)
def test_what_calls_itself_pure_is_in_the_contract(module):
    assert any(f"{module}.".startswith(f"{source}.") for source in CONTRACT["source_modules"])


@pytest.mark.parametrize("path", PURE.values(), ids=PURE)
def test_what_calls_itself_pure_has_to_be_covered(path):
    modules = path.parent.glob("[!_]*.py") if path.name == "__init__.py" else [path]
    assert set(modules) <= set().union(*COVERED.values())


def test_what_has_to_be_covered_is_there():
    assert [pattern for pattern, modules in COVERED.items() if not modules] == []
