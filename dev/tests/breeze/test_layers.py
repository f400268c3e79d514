# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The import-linter contract about modules of others."""

from __future__ import annotations

import grimp
import pytest

from breeze.layers import ForbiddenExternalContract


def _contract(forbidden, **options):
    return ForbiddenExternalContract(
        name="pure",
        session_options={},
        contract_options={"source_modules": ["ours.pure"], "forbidden_modules": [forbidden], **options},
    )


@pytest.fixture
def graph():
    """ours.pure.inner -> ours.helper -> airflow.models"""
    graph = grimp.ImportGraph()
    for module in ("ours", "ours.pure", "ours.pure.inner", "ours.helper"):
        graph.add_module(module)
    for module in ("airflow.models", "airflow.models_of_others"):
        graph.add_module(module, is_squashed=True)
    graph.add_import(importer="ours.pure.inner", imported="ours.helper")
    graph.add_import(importer="ours.helper", imported="airflow.models")
    return graph


def test_a_chain_of_imports_breaks_it(graph):
    check = _contract("airflow.models").check(graph, verbose=False)
    assert not check.kept
    assert check.metadata["chains"] == [("ours.pure.inner", "ours.helper", "airflow.models")]


def test_a_prefix_forbids_all_below_it(graph):
    assert not _contract("airflow").check(graph, verbose=False).kept


def test_the_beginning_of_a_name_is_not_a_prefix(graph):
    assert _contract("airflow.mod").check(graph, verbose=False).kept
    assert _contract("airflow.models_of_others").check(graph, verbose=False).kept


def test_an_exception_is_the_import_of_one_module_and_no_other():
    graph = grimp.ImportGraph()
    graph.add_module("ours.pure")
    graph.add_module("airflow.models", is_squashed=True)
    lines = ["from airflow.models.key import Key", "from airflow.models.dag import DAG"]
    for number, line in enumerate(lines, start=1):
        graph.add_import(
            importer="ours.pure", imported="airflow.models", line_number=number, line_contents=line
        )
    assert (
        not _contract("airflow.models", allowed_modules=["airflow.models.key"])
        .check(graph, verbose=False)
        .kept
    )
    both = ["airflow.models.key", "airflow.models.dag"]
    assert _contract("airflow.models", allowed_modules=both).check(graph, verbose=False).kept


def test_a_contract_about_nothing_is_refused(graph):
    graph.remove_module("ours.pure")
    with pytest.raises(ValueError, match=r"ours\.pure"):
        _contract("airflow").check(graph, verbose=False)
