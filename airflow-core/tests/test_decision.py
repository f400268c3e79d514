# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.decision import LONGEST_DELAY, Action, AvoidNode, BudgetUse, Decision
from airflow_resilience.mutation import MemoryIncrease, Mutation

TEXTS = st.text(min_size=1)
MUTATIONS = st.builds(
    Mutation,
    memory=st.none() | st.builds(MemoryIncrease, st.floats(1, 9), TEXTS),
    node_selector=st.dictionaries(TEXTS, st.text()),
    tolerations=st.lists(st.dictionaries(TEXTS, st.text() | st.integers())).map(tuple),
    priority_class_name=st.none() | TEXTS,
)

DECISIONS = st.builds(
    Decision,
    action=st.sampled_from(Action),
    policy=st.text(),
    rule=st.text(),
    explanation=st.text(),
    delay=st.floats(0, 1e6),
    avoid_node=st.sampled_from(AvoidNode),
    mutation=st.none() | MUTATIONS.filter(Mutation.to_dict),
    budget=st.none() | st.builds(BudgetUse, st.integers(), st.none() | st.integers()),
    ran_out=st.booleans(),
)
FIELDS = Decision(action=Action.COUNT, policy="p", rule="r", explanation="e").to_dict()


@given(DECISIONS)
def test_json_and_back(decision):
    assert Decision.from_dict(json.loads(json.dumps(decision.to_dict()))) == decision


@pytest.mark.parametrize(
    ("said", "read"),
    [(1e30, LONGEST_DELAY), (float("inf"), LONGEST_DELAY), (float("nan"), 0.0), (-1, 0.0), ("2.5", 2.5)],
    ids=str,
)
def test_a_delay_can_be_calculated_with(said, read):
    delay = Decision.from_dict(FIELDS | {"delay": said}).delay
    assert delay == read
    assert datetime.now(UTC) + timedelta(seconds=delay)


def test_what_version_0_1_0_has_written_says_less():
    later = ("budget", "ran_out", "mutation")
    read = Decision.from_dict({name: value for name, value in FIELDS.items() if name not in later})
    assert (read.budget, read.ran_out, read.mutation) == (None, False, None)


@pytest.mark.parametrize(
    "mutation",
    [
        "more",
        {"resources": "more"},
        {"resources": {"memory": {"factor": 2}}},
        {"resources": {"memory": {"factor": "much", "limit": "1Gi"}}},
        {"nodeSelector": 7},
        {"tolerations": ["all"]},
    ],
    ids=str,
)
def test_a_mutation_that_is_none_is_refused(mutation):
    with pytest.raises(ValueError, match=r"no changes to a launch|could not convert|dictionary update"):
        Decision.from_dict(FIELDS | {"mutation": mutation})


@pytest.mark.parametrize("budget", ["1 of 2", 1, {}, {"used": 1}, {"used": "some", "allowed": 2}], ids=str)
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ValueError, match=r"not a decision|invalid literal"):
        Decision.from_dict(FIELDS | {"budget": budget})


@pytest.mark.parametrize(
    "change",
    [{"action": "ponder"}, {"delay": "soon"}, {"delay": None}, {"delay": 10**400}, {"avoid_node": 1}],
    ids=str,
)
def test_what_is_not_a_decision_is_refused(change):
    with pytest.raises(ValueError, match=r"decision|Action|float|AvoidNode"):
        Decision.from_dict(FIELDS | change)
    with pytest.raises(ValueError, match="not a decision"):
        Decision.from_dict({name: value for name, value in FIELDS.items() if name not in change})
