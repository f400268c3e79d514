# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What calls itself pure is held to it: by import-linter, and by the measure of coverage."""

from __future__ import annotations

import ast
import re
import tomllib

from breeze.paths import CORE, PROVIDER, ROOT

TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
(CONTRACT,) = (
    contract
    for contract in TOOLS["importlinter"]["contracts"]
    if contract["name"].startswith("what is called pure")
)
COVERED = {pattern: set(ROOT.glob(pattern)) for pattern in TOOLS["coverage"]["report"]["include"]}

#: By their dotted names. A docstring of a package is one about all of its modules.
PURE = {
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
    for source in (CORE / "src", PROVIDER / "src")
    for path in source.rglob("*.py")
    if re.search(r"\bpure\b", ast.get_docstring(ast.parse(path.read_text())) or "", re.IGNORECASE)
}


def test_what_calls_itself_pure_is_in_the_contract():
    assert len(PURE) > 10
    sources = tuple(f"{source}." for source in CONTRACT["source_modules"])
    assert [module for module in PURE if not f"{module}.".startswith(sources)] == []


def test_what_calls_itself_pure_has_to_be_covered():
    for path in PURE.values():
        modules = path.parent.glob("[!_]*.py") if path.name == "__init__.py" else [path]
        assert set(modules) - set().union(*COVERED.values()) == set()


def test_what_has_to_be_covered_is_there():
    assert [pattern for pattern, modules in COVERED.items() if not modules] == []
