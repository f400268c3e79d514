# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What others say is logged and stored without the secrets in it."""

from __future__ import annotations

import json
import logging

import pytest
from airflow._shared.secrets_masker import mask_secret, reset_secrets_masker
from airflow.models.log import Log
from airflow.models.xcom import XComModel
from sqlalchemy import select
from sqlalchemy.exc import DataError

from airflow.providers.cncf.kubernetes_resilience.executors.actions import Actions
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import (
    PUBLISH_BACKOFF,
    REFUSALS,
)
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import ATTEMPTS
from airflow.providers.cncf.kubernetes_resilience.executors.masking import (
    DESCRIPTION_LIMIT,
    describe,
    mask_secrets,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import error_from_status
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodNotCreated

from ...support import manifests as m
from ...support.harness import noted_log

SECRET = "correct-horse-battery"
JWT = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiIwMTk5In0.c2lnbmF0dXJl_-c2ln"
BEGINNING = (
    '{{"event":"Executing workload","workload":"ExecuteTask(token=\'{}\', ti=TaskInstance(id=UUID(\'0\'))'
)


@pytest.fixture
def masked_by_airflow():
    """Give a function that has Airflow mask a text."""

    def mask(text):
        mask_secret(text)
        return text

    yield mask
    reset_secrets_masker()


@pytest.fixture
def secret(masked_by_airflow):
    """Give a text that Airflow masks."""
    return masked_by_airflow(SECRET)


def said(message: str) -> m.Json:
    return m.pod("Failed", [m.base(m.terminated(1, "Error", message))])


def masked(message: str) -> str | None:
    (container,) = mask_secrets(read_pod(said(message))).containers
    return container.message


def test_what_airflow_masks_is_masked(secret):
    assert masked(f"cannot log in to db with {secret}\n") == "cannot log in to db with ***\n"


def test_so_is_a_reason_that_is_no_word_of_kubernetes(secret, masked_by_airflow):
    word, odd = masked_by_airflow("Evicted"), masked_by_airflow("hunter2")
    base = m.base(m.terminated(1, f"no {secret}"))
    facts = mask_secrets(read_pod(m.pod("Failed", [base], conditions=(m.disruption(odd),), reason=word)))
    reasons = facts.reason, facts.containers[0].reason, facts.conditions[-1].reason
    assert reasons == (word, "no ***", "***")


def json_in_json(text: str) -> str:
    return json.dumps(f'{{"password": {json.dumps(text)}}}')


@pytest.mark.parametrize("quote", [json.dumps, repr, json_in_json], ids=lambda quote: quote.__name__)
@pytest.mark.parametrize(
    "text", ["back\\slash-horse", "two-lines\nof-a-horse", "both'quotes\"-horse", "pferd-\N{EURO SIGN}-horse"]
)
def test_a_secret_that_somebody_has_quoted(masked_by_airflow, text, quote):
    """A webhook does, for example, or the log of a worker."""
    said = masked(f'no\n  "db": {quote(masked_by_airflow(text))}\n' + r"in C:\new\u0041" + "\n")
    assert said is not None
    assert "***" in said
    assert "horse" not in said
    assert said.endswith("\nin C:\\new\\u0041\n")


def test_beside_it_stays_what_a_database_does_not_take(masked_by_airflow):
    rest = r" \u0000 \x00 \ud83d \d"
    assert masked(json.dumps(masked_by_airflow("pferd-\N{EURO SIGN}-horse")) + rest) == f'"***"{rest}'


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
    monkeypatch.setattr(Actions, "log", noted_log(__name__))
    ti = queued_ti()
    pod = harness.launch(ti)
    with caplog.at_level(logging.INFO):
        harness.observe(pod, said(f"ValueError: wrong password {secret}, token {JWT}\n"))
    (entry,) = harness.ledger(ti)
    assert entry["context"]["metadata"]["message"] == "ValueError: wrong password ***, token ***\n"
    info = harness.failure()
    assert "ValueError: wrong password ***" in info
    assert "ValueError: wrong password ***" in caplog.text
    for text in (info, caplog.text, str(entry)):
        assert secret not in text
        assert JWT not in text


def a_pod(harness, secret, monkeypatch):
    """Say it in each text of a pod."""
    failed = m.pod(
        "Failed",
        [m.base(m.terminated(1, "Error", secret))],
        init=[m.status_of("git-sync", m.terminated(1, "Error", secret))],
        reason="Odd",
        message=secret,
        conditions=(m.condition("DisruptionTarget", "True", "Odd", secret),),
    )
    harness.observe(harness.created(), failed)


def a_scheduler_of_kubernetes(harness, secret, monkeypatch):
    harness.observe(harness.created(), m.unschedulable(secret))
    harness.wait(60)


def the_api_server(status):
    def refuse(harness, secret, monkeypatch):
        message = f'Pod "x" is invalid: spec.containers[0].env[0].value: Invalid value: "{secret}"'
        for _ in range(REFUSALS + 2):
            if calls := harness.runtime.take("create"):
                error = error_from_status(status, {"kind": "Status", "reason": "Odd", "message": message})
                harness.send(PodNotCreated(calls[0][0], error))
            harness.wait(PUBLISH_BACKOFF.maximum)

    return refuse


def a_hook(harness, secret, monkeypatch):
    def hook(pod):
        raise RuntimeError(secret)

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)


def a_template(harness, secret, monkeypatch):
    def reconcile(base, client):
        raise ValueError(secret)

    generator = "airflow.providers.cncf.kubernetes.pod_generator.PodGenerator"
    monkeypatch.setattr(f"{generator}.reconcile_pods", reconcile)


def a_builder(harness, secret, monkeypatch):
    def build(*args):
        raise OSError(secret)

    monkeypatch.setattr(PodBuilder, "build", build)


def the_database(harness, secret, monkeypatch):
    def fail(*args, **options):
        raise DataError(secret, None, ValueError(secret))

    monkeypatch.setattr(task_instances, "refresh_queued", fail)


BEFORE_A_POD = [a_hook, a_template, a_builder, the_database]


def told_of(harness):
    """Return all that was reported and stored."""
    harness.session.commit()
    told = [str(info) for _, info in harness.events().values()]
    told += [row.extra or "" for row in harness.session.scalars(select(Log))]
    return "\n".join([*told, *(str(item.value) for item in harness.session.scalars(select(XComModel)))])


@pytest.mark.parametrize(
    "say",
    [a_pod, a_scheduler_of_kubernetes, the_api_server(422), the_api_server(403), *BEFORE_A_POD],
    ids=lambda say: say.__name__,
)
def test_nothing_that_is_told_of_a_failure_shows_a_secret(start, queued_ti, secret, monkeypatch, say):
    harness = start(
        KUBERNETES_RESILIENCE__UNSCHEDULABLE_TIMEOUT="30", KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="0"
    )
    ti = queued_ti()
    if say in BEFORE_A_POD:
        say(harness, f"wrong password {secret}", monkeypatch)
    harness.hand_over(ti)
    if say not in BEFORE_A_POD:
        say(harness, f"wrong password {secret}", monkeypatch)
    for _ in range(ATTEMPTS + 1):
        harness.wait(10)
    told = told_of(harness)
    assert "wrong password ***" in told or "Invalid value" in told
    assert secret not in told


@pytest.mark.parametrize("text", ["back\\slash-horse", "two-lines\nof-a-key", "both'quotes\"-horse"])
@pytest.mark.parametrize("say", BEFORE_A_POD, ids=lambda say: say.__name__)
def test_a_secret_that_is_written_otherwise_in_a_representation(
    harness, queued_ti, masked_by_airflow, monkeypatch, say, text
):
    say(harness, f"wrong password {masked_by_airflow(text)}", monkeypatch)
    harness.hand_over(queued_ti())
    for _ in range(ATTEMPTS + 1):
        harness.wait(10)
    told = told_of(harness)
    assert "wrong password ***" in told
    assert "horse" not in told
    assert "of-a-key" not in told


def test_a_secret_in_the_reason_that_a_webhook_gives(harness, queued_ti, secret):
    """It is any text: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/"""
    harness.hand_over(queued_ti())
    message = 'admission webhook "pods.example.com" denied the request: no'
    body = {"kind": "Status", "reason": f"password {secret}", "message": message}
    harness.refuse(error_from_status(403, body))
    told = told_of(harness)
    assert "403 password ***" in told
    assert secret not in told


@pytest.mark.parametrize("status", [403, 422])
def test_a_secret_that_is_longer_than_the_text_of_a_refusal(harness, queued_ti, masked_by_airflow, status):
    """A private key, for example, in a manifest that the API server quotes."""
    key = masked_by_airflow("".join(f"line-{number}-of-a-key" for number in range(200)))
    harness.hand_over(queued_ti())
    message = f'pods "x" is forbidden: spec.containers[0].env[0].value: Invalid value: "{key}"'
    harness.refuse(error_from_status(status, {"kind": "Status", "reason": "Invalid", "message": message}))
    told = told_of(harness)
    assert 'Invalid value: "***"' in told.replace("\\", "")
    assert "of-a-key" not in told


def test_a_secret_in_a_pod_whose_failure_a_dead_scheduler_has_decided_on(start, successor, queued_ti, secret):
    config = {
        "KUBERNETES_RESILIENCE__UNSCHEDULABLE_TIMEOUT": "30",
        "KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": "0",
    }
    harness, ti = start(**config), queued_ti()
    pod = harness.launch(ti)
    like = m.unschedulable()
    like["status"]["message"] = f"password {secret}"
    harness.observe(pod, like)
    harness.parts.actions.act = lambda settled: None
    harness.wait(31)
    heir = successor(**config)
    heir.take_over(ti)
    heir.deleted(pod.ref)
    told = told_of(heir)
    assert "message 'password ***'" in told
    assert secret not in told


def test_what_is_told_to_users_is_short_and_in_one_line():
    told = describe(ValueError("first\nsecond " + "x" * 1000 + " last"))
    assert told.startswith("ValueError: first second")
    assert "\n" not in told
    assert len(told) <= DESCRIPTION_LIMIT


def test_what_is_told_has_no_character_that_a_database_does_not_take():
    assert describe(ValueError("a\0b \ud83d é")) == r"ValueError: a\x00b \ud83d é"
