# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
No regular expression of the product can hold up a scheduler, an API server or a worker.

Python's own engine backtracks, so that a text can be written on which a search takes seconds. The texts of
others are therefore searched by RE2 (``airflow_resilience.retry_policy.patterns``), or without such patterns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from breeze.paths import CORE, PROVIDER

BACKTRACKING = {"re", "regex", "sre_compile", "fnmatch", "glob"}
PATTERNS = "airflow_resilience/retry_policy/patterns.py"
KUBERNETES = "airflow/providers/cncf/kubernetes_resilience"

ALLOWED = {
    ("airflow_resilience/retry_policy/marked_yaml.py", "_SURROGATE"): "one character: nothing to go back to",
    ("airflow_resilience/retry_policy/problems.py", "_PLAIN_KEY"): "61 characters of the deployer's file",
    ("airflow_resilience/retry_policy/selection.py", "_why_selected"): (
        "250 characters of a Dag's id, and patterns of the deployer, of which Python makes atomic groups"
    ),
    (f"{KUBERNETES}/executors/masking.py", "_TOKEN"): (
        "written by tasks; nothing follows what repeats but the end of a text at its beginning"
    ),
    (f"{KUBERNETES}/executors/masking.py", "_ESCAPE"): "nothing in it repeats",
    (f"{KUBERNETES}/executors/masking.py", "_character"): "the type of a match",
    (f"{KUBERNETES}/cli/in_place_wheel.py", "_describe"): "the metadata of a wheel, on a person's command",
}
"""Where the product may use Python's own engine, and why no text makes that slow."""


def uses(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Name the function, class or constant at the top of the module around each use of one of the modules."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {item.asname or item.name for item in node.names if item.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            names |= {item.asname or item.name for item in node.names}
    for statement in tree.body:
        if any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(statement)):
            yield name_of(statement)


def name_of(statement: ast.stmt) -> str:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return f"line {statement.lineno}"


def places(modules: set[str]) -> set[tuple[str, str]]:
    return {
        (path.relative_to(source).as_posix(), name)
        for source in (CORE / "src", PROVIDER / "src")
        for path in source.rglob("*.py")
        for name in uses(ast.parse(path.read_text()), modules)
    }


def test_engine_that_goes_back_is_used_where_there_is_a_reason_only() -> None:
    assert places(BACKTRACKING) == set(ALLOWED)


def test_engine_in_linear_time_is_used_in_one_place() -> None:
    assert {path for path, _ in places({"re2"})} == {PATTERNS}
