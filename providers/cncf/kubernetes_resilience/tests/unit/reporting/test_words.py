# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow.providers.cncf.kubernetes_resilience.reporting.words import (
    cause_of,
    end_in_words,
    in_words,
    node_of,
)
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason

from ...support.entries import lost


def test_every_cause_has_its_sentence():
    assert {cause.name for cause in TABLE if not in_words(cause.name)} == set()
    assert in_words("of a later version") is None


@pytest.mark.parametrize("reason", StateChangeReason)
def test_every_reason_has_its_sentence(reason):
    context = ExecutionContext(StateChangeCategory.APPLICATION, reason, ContextSource.WORKER)
    assert end_in_words(context).endswith(".")


def test_what_a_row_does_not_have():
    entry = lost(cause="", node=None)
    assert (cause_of(entry), node_of(entry)) == ("unknown", "unknown")
    assert (cause_of(lost()), node_of(lost())) == ("drain", "node-1")
