# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.decision import Action, AvoidNode, Decision

DECISIONS = st.builds(
    Decision,
    action=st.sampled_from(Action),
    policy=st.text(),
    rule=st.text(),
    explanation=st.text(),
    delay=st.floats(0, 1e6),
    avoid_node=st.sampled_from(AvoidNode),
)


@given(DECISIONS)
def test_json_and_back(decision):
    assert Decision.from_dict(json.loads(json.dumps(decision.to_dict()))) == decision


@pytest.mark.parametrize(
    "change", [{"action": "ponder"}, {"delay": "soon"}, {"delay": None}, {"avoid_node": 1}]
)
def test_what_is_not_a_decision_is_refused(change):
    fields = Decision(action=Action.COUNT, policy="p", rule="r", explanation="e").to_dict()
    with pytest.raises(ValueError, match=r"decision|Action|float|AvoidNode"):
        Decision.from_dict(fields | change)
    with pytest.raises(ValueError, match="not a decision"):
        Decision.from_dict({name: value for name, value in fields.items() if name not in change})
