# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The words that warnings take for known."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis import causes, failure
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import OWN_REASONS
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.vocabulary import VOCABULARY
from airflow_resilience.context import StateChangeCategory, StateChangeReason

OF_REASONS = {"pod_reason", "container_reason", "_disrupted_by"}
"""Functions of the table's modules that take reasons."""


def reasons_of_the_table() -> set[str]:
    """Return each reason that stands in a call of one of the functions, or that a reason is compared with."""
    found: set[str] = set()
    for path in Path(causes.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name), args=values) if name in OF_REASONS:
                    pass
                case ast.Compare(left=ast.Attribute(attr="reason"), comparators=values):
                    pass
                case _:
                    continue
            found |= {text for value in values if (text := word(value))}
    return found


def word(value: ast.expr) -> str | None:
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return getattr(failure, name, None)
    return None


def test_every_reason_of_the_table_is_known():
    found = reasons_of_the_table()
    assert {"Evicted", "OOMKilled", "ErrImagePull", "PreemptionByScheduler", "ProviderFailed"} < found
    # No policy is asked about it, so that a rule about it is worth its warning.
    assert found - VOCABULARY.reasons == {failure.TOKEN_EXPIRED}


def test_our_own_words_are_known():
    assert VOCABULARY.reasons > OWN_REASONS


def test_default_reasons_of_upstream_are_known():
    assert set(KubeConfig().worker_pod_pending_fatal_container_state_reasons) <= VOCABULARY.reasons


@pytest.mark.parametrize(
    "reason",
    [
        "OutOfcpu",
        "OutOfnvidia.com/gpu",
        "WorkloadEvictedDueToPreempted",
        "StoppedByKueue",
        "Error",
        "Deleted",
    ],
)
def test_what_pods_show_gives_no_warning(reason):
    assert VOCABULARY.warning_about(reason) is None


def test_only_what_the_table_yields_is_a_classification():
    assert VOCABULARY.categories == {cause.category for cause in TABLE} < set(StateChangeCategory)
    assert VOCABULARY.classified_reasons == {cause.reason for cause in TABLE} < set(StateChangeReason)


@pytest.mark.parametrize(
    ("word", "meant"), [("Preempted", "PreemptionByScheduler"), ("OutOfMemory", "OOMKilled")]
)
def test_word_of_others_leads_to_that_of_kubernetes(word, meant):
    assert (
        VOCABULARY.warning_about(word)
        == f"got {word!r}, which is no reason that is known (did you mean {meant}?)"
    )
