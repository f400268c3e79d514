# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The import-linter contract about modules of others."""

from __future__ import annotations

import grimp
import pytest

from breeze.layers import ForbiddenExternalContract


@pytest.mark.parametrize(
    ("forbidden", "chains"),
    [
        ("airflow.models", [("ours.pure.inner", "ours.helper", "airflow.models")]),
        ("airflow", [("ours.pure.inner", "ours.helper", "airflow.models")]),
        ("airflow.mod", []),
    ],
)
def test_a_chain_of_imports_breaks_it(forbidden, chains):
    graph = grimp.ImportGraph()
    for module in ("ours", "ours.pure", "ours.pure.inner", "ours.helper"):
        graph.add_module(module)
    graph.add_module("airflow.models", is_squashed=True)
    graph.add_import(importer="ours.pure.inner", imported="ours.helper")
    graph.add_import(importer="ours.helper", imported="airflow.models")
    options = {"source_modules": ["ours.pure"], "forbidden_modules": [forbidden]}
    contract = ForbiddenExternalContract(name="pure", session_options={}, contract_options=options)
    check = contract.check(graph, verbose=False)
    assert (check.kept, check.metadata["chains"]) == (not chains, chains)
