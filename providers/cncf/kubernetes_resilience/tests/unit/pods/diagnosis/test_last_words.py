# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How much of a message is kept, and what of it a line of the log has room for."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import (
    LOG_LIMIT,
    MESSAGE_LIMIT,
    cut,
    keep,
    summarise,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ContainerFacts,
    ContainerState,
    ContainerType,
)

from ....support.pod_fixtures import read_worker_log


def container(
    message: str | None, reason: str | None = "Error", state: ContainerState = ContainerState.TERMINATED
) -> ContainerFacts:
    return ContainerFacts("base", ContainerType.WORKER, state, reason, message, 1)


def test_message_that_fits_is_not_cut() -> None:
    message = "x" * MESSAGE_LIMIT
    assert cut(message) == message
    assert cut(message + "y") == message + "…"
    assert cut(None) is None


@pytest.mark.parametrize("reason", ["Error", "OOMKilled", "Completed", None])
def test_end_of_what_a_program_said_is_kept(reason: str | None) -> None:
    assert keep(container("x" * LOG_LIMIT, reason)) == "x" * LOG_LIMIT
    kept = keep(container("x" * LOG_LIMIT + "y", reason))
    assert kept.startswith("…x")
    assert kept.endswith("xy")
    assert len(kept.encode()) == LOG_LIMIT


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("StartError", ContainerState.TERMINATED),
        ("ContainerStatusUnknown", ContainerState.TERMINATED),
        ("ErrImagePull", ContainerState.WAITING),
        (None, ContainerState.WAITING),
    ],
)
def test_beginning_of_what_the_kubelet_or_the_runtime_said_is_kept(
    reason: str | None, state: ContainerState
) -> None:
    said = container("x" + "y" * 4000, reason, state)
    assert keep(said) == summarise(said) == "x" + "y" * (MESSAGE_LIMIT - 1) + "…"


def test_limit_is_of_bytes_and_cuts_no_character_in_two() -> None:
    kept = keep(container("\N{SNOWMAN}" * 1000))
    assert LOG_LIMIT - 3 <= len(kept.encode()) <= LOG_LIMIT
    assert set(kept) == {"…", "\N{SNOWMAN}"}


@pytest.mark.parametrize(
    ("log", "summary"),
    [
        ("airflow-3.1-refused", "httpx.ConnectError: [Errno 111] Connection refused"),
        ("airflow-3.1-answer-401", "airflow.sdk.api.client.ServerResponseError: Invalid auth token"),
        ("airflow-3.3-name-unknown", "ConnectError: [Errno -2] Name or service not known"),
        ("airflow-3.3-secrets-backend-missing", "ModuleNotFoundError: No module named 'not_installed'"),
        ("airflow-3.3-settings-import-missing", "ModuleNotFoundError: No module named 'company_policies'"),
    ],
)
def test_exception_that_ended_a_real_worker_is_in_the_line_of_the_log(log: str, summary: str) -> None:
    assert (summarise(container(read_worker_log(log))) or "").startswith(summary)


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        ('"exc_type":"OddError","exc_value":"a \\"b\\"\\nc"', 'OddError: a "b"\nc'),
        ('"exc_type":"OddError","exc_value":"\\x"', '"exc_type":"OddError","exc_value":"\\x"'),
        ('"exc_type":"OddError","exc_value":[', '"exc_type":"OddError","exc_value":['),
        ('type":"OddError","exc_value":"a"', 'type":"OddError","exc_value":"a"'),
        ('  File "a"\nA: b\n  c.D: e\nf: g', "A: b"),
        ("Warning: of no account\nfatal: no such host\n", "Warning: of no account\nfatal: no such host"),
        ("  fatal: unable to access the repository \n", "fatal: unable to access the repository"),
        ("", None),
        (None, None),
    ],
)
def test_whatever_else_a_program_said_is_summarised_by_its_end(
    message: str | None, summary: str | None
) -> None:
    assert summarise(container(message)) == summary


@pytest.mark.parametrize(
    "message",
    [
        "x" * 4000,
        '  File "a.py"\nOddError: ' + "x" * 4000,
        f'"exc_type":"OddError","exc_value":"{"x" * 4000}"',
    ],
)
def test_summary_is_short_whatever_was_said(message: str) -> None:
    assert len(summarise(container(message)) or "") <= MESSAGE_LIMIT + 1
