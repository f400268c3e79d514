# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
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


VERSION_1 = {
    "version": 1,
    "category": "INFRASTRUCTURE",
    "reason": "WORKER_TERMINATION",
    "source": "EXECUTOR",
    "metadata": {"node": "node-1", "exit_code": 137},
}
"""As it is stored: this must stay readable, and must stay what is written."""

NODE_LOST = ExecutionContext(
    StateChangeCategory.INFRASTRUCTURE,
    StateChangeReason.WORKER_TERMINATION,
    ContextSource.EXECUTOR,
    {MetadataKey.NODE: "node-1", MetadataKey.EXIT_CODE: 137},
)


def test_version_1():
    assert NODE_LOST.to_dict() == VERSION_1
    assert ExecutionContext.from_dict(VERSION_1) == NODE_LOST
    assert {type(name) for name in NODE_LOST.to_dict()["metadata"]} == {str}


def test_what_was_stored_without_a_version_is_version_1():
    stored = {name: value for name, value in VERSION_1.items() if name != "version"}
    assert ExecutionContext.from_dict(stored) == NODE_LOST


def test_a_newer_version_is_read_as_far_as_it_is_known():
    assert ExecutionContext.from_dict(VERSION_1 | {"version": 2, "weather": "rain"}) == NODE_LOST


def test_the_site_describes_each_metadata_key():
    page = (Path(__file__).parents[2] / "docs" / "execution-context.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page.partition("## Metadata")[2], re.MULTILINE) == [*MetadataKey]


def test_the_site_describes_each_reason():
    page = (Path(__file__).parents[2] / "docs" / "execution-context.md").read_text()
    described = re.findall(
        r"^\| `(\w+)` \|", page.partition("## Reasons")[2].partition("## ")[0], re.MULTILINE
    )
    assert described == [*StateChangeReason]


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
        [],
        VERSION_1 | {"version": 0},
        VERSION_1 | {"version": "first"},
        VERSION_1 | {"version": None},
        VERSION_1 | {"version": float("inf")},
        VERSION_1 | {"version": 2, "reason": "SUNSPOTS"},
    ],
    ids=repr,
)
def test_anything_else_is_refused(fields):
    with pytest.raises(ValueError, match=r"WEATHER|SUNSPOTS|first|not a"):
        ExecutionContext.from_dict(fields)
