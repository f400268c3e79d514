# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)

CONTEXTS = st.builds(
    ExecutionContext,
    st.sampled_from(StateChangeCategory),
    st.sampled_from(StateChangeReason),
    st.sampled_from(ContextSource),
    st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans(), st.none())),
)


@given(CONTEXTS)
def test_json_and_back(context):
    assert ExecutionContext.from_dict(json.loads(json.dumps(context.to_dict()))) == context


def test_it_cannot_be_changed():
    context = ExecutionContext(
        StateChangeCategory.TIMEOUT, StateChangeReason.EXECUTION_TIMEOUT, ContextSource.SCHEDULER
    )
    assert context.metadata == {}
    with pytest.raises(FrozenInstanceError):
        context.reason = StateChangeReason.UNKNOWN


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"category": "WEATHER", "reason": "UNKNOWN", "source": "API", "metadata": {}},
        {"category": "TIMEOUT", "reason": "UNKNOWN", "source": "API", "metadata": None},
        {"category": "TIMEOUT", "reason": "UNKNOWN", "source": "API"},
        None,
    ],
    ids=["nothing", "unknown category", "no mapping", "missing", "null"],
)
def test_anything_else_is_refused(fields):
    with pytest.raises(ValueError, match=r"WEATHER|not an execution context"):
        ExecutionContext.from_dict(fields)


def test_the_words_of_aip_97():
    assert {*StateChangeCategory} == {"INFRASTRUCTURE", "APPLICATION", "TIMEOUT", "USER_ACTION"}
    assert {*ContextSource} == {"WORKER", "EXECUTOR", "SCHEDULER", "API"}
    assert {*StateChangeReason} >= {
        "WORKER_TERMINATION",
        "WORKER_LOST",
        "RESOURCE_EXHAUSTION",
        "DB_CONNECTION_ERROR",
        "EXECUTION_TIMEOUT",
        "MANUAL_CLEAR",
    }
