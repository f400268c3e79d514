# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.propagation.stored import NUMBER_LIMIT, TEXT_LIMIT, StoredContext


def stored(**metadata) -> StoredContext:
    context = ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_LOST, ContextSource.EXECUTOR, metadata
    )
    return StoredContext("id", 2, context)


def test_json_and_back():
    item = stored(node="node-1", exit_code=137, known=True, nothing=None)
    assert StoredContext.from_json(item.to_json()) == item


def test_why_it_is_launched_again_travels_with_it():
    item = stored()._replace(explanation="launch 1 of 2")
    assert StoredContext.from_json(item.to_json()) == item


def test_it_is_bounded():
    item = stored(message="x" * 10**6, more=["y" * 10**6], **{f"key{n}": n for n in range(1000)})
    text = item._replace(explanation="z" * 10**6).to_json()
    assert len(text) < 3 * TEXT_LIMIT + NUMBER_LIMIT * 100
    assert StoredContext.from_json(text).context.metadata["message"] == "x" * TEXT_LIMIT + "…"


def test_kubernetes_finds_nothing_to_expand_in_it():
    item = stored(message="$(DB_PASSWORD) costs $$5")
    assert "$" not in item.to_json()
    assert StoredContext.from_json(item.to_json()) == item


def test_a_text_that_postgresql_does_not_take_is_mended():
    item = stored(message="a\0b\ud800c", rate=float("nan"))
    assert item.to_dict()["context"]["metadata"] == {"message": "ab?c", "rate": "nan"}


@pytest.mark.parametrize(
    "text", [None, "", "null", "[]", "{}", "{", '{"context": {}}', '{"ti_id": 1}', "[" * 100_000]
)
def test_anything_else_is_nothing(text):
    assert StoredContext.from_json(text) is None
    assert StoredContext.from_dict(text) is None


@pytest.mark.parametrize("fields", [{"try_number": float("inf")}, {"context": {"version": float("inf")}}])
def test_numbers_that_are_none_are_nothing(fields):
    """Anybody may write an XCom, and JSON as Python reads it has them."""
    assert StoredContext.from_dict(stored().to_dict() | fields) is None
