# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a worker has said is logged and stored without the secrets in it."""

from __future__ import annotations

import logging

import pytest
from airflow._shared.secrets_masker import mask_secret, reset_secrets_masker

from airflow.providers.cncf.kubernetes_resilience.executors.failures.masking import mask_secrets
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod

from ....support import manifests as m
from ....support.harness import noted_log

SECRET = "correct-horse-battery"
JWT = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiIwMTk5In0.c2lnbmF0dXJl_-c2ln"
BEGINNING = (
    '{{"event":"Executing workload","workload":"ExecuteTask(token=\'{}\', ti=TaskInstance(id=UUID(\'0\'))'
)


@pytest.fixture
def secret():
    """Give a text that Airflow masks."""
    mask_secret(SECRET)
    yield SECRET
    reset_secrets_masker()


def said(message: str) -> m.Json:
    return m.pod("Failed", [m.base(m.terminated(1, "Error", message))])


def masked(message: str) -> str | None:
    (container,) = mask_secrets(read_pod(said(message))).containers
    return container.message


def test_what_airflow_masks_is_masked(secret):
    assert masked(f"cannot log in to db with {secret}\n") == "cannot log in to db with ***\n"


def test_token_of_a_worker_that_prints_it():
    assert masked(BEGINNING.format(JWT)) == BEGINNING.format("***")


@pytest.mark.parametrize("cut", range(1, len(JWT)))
def test_token_that_the_kubelet_has_cut_in_two(cut):
    """Airflow 3.1 prints its token in the line that it begins with, of which the kubelet keeps the end."""
    _, token, rest = BEGINNING.format(JWT).partition(JWT)
    assert masked(token[cut:] + rest) == "***" + rest


def test_text_without_secrets_is_not_changed():
    text = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x\', ti=TaskInstance(\n'
    assert masked(text) == text
    facts = read_pod(m.worker_error())
    assert mask_secrets(facts) is facts


def test_neither_ledger_nor_log_nor_event_shows_a_secret(harness, queued_ti, secret, caplog, monkeypatch):
    monkeypatch.setattr(KubernetesExecutor, "log", noted_log(__name__))
    ti = queued_ti()
    pod = harness.launch(ti)
    with caplog.at_level(logging.INFO):
        harness.observe(pod, said(f"ValueError: wrong password {secret}, token {JWT}\n"))
    (entry,) = harness.ledger(ti)
    assert entry["context"]["metadata"]["message"] == "ValueError: wrong password ***, token ***\n"
    ((state, info),) = harness.events().values()
    assert state == "failed"
    assert "ValueError: wrong password ***" in info
    assert "ValueError: wrong password ***" in caplog.text
    for text in (info, caplog.text, str(entry)):
        assert secret not in text
        assert JWT not in text
