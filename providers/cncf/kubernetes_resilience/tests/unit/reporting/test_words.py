# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow.providers.cncf.kubernetes_resilience.reporting.words import cause_of, in_words, node_of

from ...support.entries import lost


def test_every_cause_has_its_sentence():
    assert {cause.name for cause in TABLE if not in_words(cause.name)} == set()
    assert in_words("of a later version") is None


def test_what_a_row_does_not_have():
    entry = lost(cause="", node=None)
    assert (cause_of(entry), node_of(entry)) == ("unknown", "unknown")
    assert (cause_of(lost()), node_of(lost())) == ("drain", "node-1")
