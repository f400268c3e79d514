# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The table of the documentation that says what becomes of a refused create call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import COURSES
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    ForeignAnswerError,
    KubernetesApiError,
    UnknownOwnerError,
    error_from_status,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import Answer, answer_of
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodNotCreated

NAME = "docs/launch-failures.md"
PAGE = next(folder / NAME for folder in Path(__file__).parents if (folder / NAME).exists())
SECTION = PAGE.read_text().partition("## What becomes of a refused create call")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("| ")
][1:]

LONGEST = 30.0
"""Minutes after which a call that is still repeated counts as repeated for ever."""

OPTION = "KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES"


def says(status: int, message: str, reason: str = "") -> KubernetesApiError:
    return error_from_status(status, {"kind": "Status", "reason": reason, "message": message})


def page(status: int) -> KubernetesApiError:
    return error_from_status(status, None, text="<html>")


class Example(NamedTuple):
    """Answers that a row of the table is about, and what else is the case."""

    answers: Sequence[KubernetesApiError]
    options: dict[str, str] = {}  # noqa: RUF012 - never changed
    others: bool = False
    """Whether the pods of other tasks are created meanwhile."""


QUOTA = says(
    403, 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
)
MODIFIED = says(409, "the object has been modified; please apply", "Conflict")
TOO_OLD = says(410, "too old resource version: 1 (2)", "Expired")
FAILING = [
    ConnectionFailedError("reset"),
    *(says(status, "no") for status in (408, 429, 500, 502, 503, 504)),
]

EXAMPLES = [
    Example(
        [
            *(says(code, 'admission webhook "w" denied the request: no owner') for code in (400, 403, 500)),
            says(403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged'),
            says(403, 'pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2'),
            says(
                403, 'pods "x" is forbidden: exceeded quota: q, requested: cpu=2, used: cpu=1, limited: cpu=1'
            ),
        ]
    ),
    Example([*(says(code, "invalid") for code in (400, 413, 422)), says(404, "no namespace", "NotFound")]),
    Example([says(409, "pods x already exists", "AlreadyExists")]),
    Example([QUOTA]),
    Example([QUOTA], {OPTION: "3"}),
    Example([MODIFIED, TOO_OLD, says(410, "the continue token is too old", "Expired")]),
    Example([MODIFIED, TOO_OLD], {OPTION: "0"}),
    Example(FAILING[::3], others=True),
    Example(FAILING[:1]),
    Example(
        [
            says(403, 'pods "x" is forbidden: error looking up service account a/w: not found'),
            says(
                403,
                'pods "x" is forbidden: error looking up service account a/w: serviceaccount "w" not found',
            ),
            says(403, 'pods "x" is forbidden: service account a/w was not found, retry after'),
            says(403, 'pods "x" is forbidden: no API token found for service account a/w, retry after'),
        ]
    ),
    Example(
        [
            says(401, "Unauthorized"),
            says(403, 'pods "x" is forbidden: error looking up service account a/w: etcdserver: no leader'),
            says(403, 'pods is forbidden: User "system:serviceaccount:a:w" cannot: role "r" not found'),
            says(403, 'pods is forbidden: User "airflow" cannot create resource "pods"'),
            says(403, 'pods "x" is forbidden: status unknown for quota: q, resources: pods'),
            UnknownOwnerError("409; looking for it: 403", status=403),
        ]
    ),
    Example(
        [
            ForeignAnswerError("unreadable answer"),
            *(page(status) for status in (302, 400, 401, 403, 404, 405, 409, 410, 413, 422, 520)),
        ]
    ),
]
"""For each row of the table, in its order."""


class Seen(NamedTuple):
    """What becomes of a launch whose create calls are all answered so."""

    calls: int
    minutes: float
    entry: dict | None
    """The row of the ledger; None if the call is repeated for ever."""
    delay: float | None
    """Seconds until the task is launched again; None if it fails."""


def play(harness, ti, others, answer: KubernetesApiError) -> Seen:
    harness.hand_over(ti)
    began, calls, ledger = harness.clock.now, 0, []
    while not ledger and harness.clock.now - began < LONGEST * 60:
        minutes, open_calls = (harness.clock.now - began) / 60, harness.runtime.take("create")
        if open_calls and others and calls % 3 == 0:
            harness.launch(others.pop())
        for launch_id, _ in open_calls:
            calls += 1
            harness.send(PodNotCreated(launch_id, answer))
            ledger = harness.ledger(ti)
        if not ledger:
            harness.wait(5)
    (entry,) = ledger or [None]
    delay = entry["delay"] if entry and not harness.events() else None
    return Seen(calls, minutes, entry, delay)


def read_number(text: str) -> int:
    return {"not": 0, "once": 1}.get(text) or int(re.sub(r"\D", "", text) or 0)


@pytest.mark.parametrize(
    ("row", "example", "answer"),
    [
        pytest.param(row, example, answer, id=f"{number}-{answer}"[:60])
        for number, (row, example) in enumerate(zip(ROWS, EXAMPLES, strict=True), 1)
        for answer in example.answers
    ],
)
def test_what_becomes_of_it_is_what_the_table_says(start, queued_ti, row, example, answer):
    _, repeated, lasts, why, policy = row
    others = queued_ti("others", mapped=20) if example.others else []
    seen = play(start(**example.options), queued_ti(), others, answer)
    if repeated == "each half a minute":
        assert seen.minutes < seen.calls < 4 * seen.minutes
    else:
        assert seen.calls - 1 == read_number(repeated)
    if lasts == "for ever":
        assert (seen.entry, why, policy) == (None, "", "")
        return
    assert seen.minutes == pytest.approx(read_number(lasts), abs=2)
    context = seen.entry["context"]
    assert why == f"`{seen.entry['reason']}`, `{context['metadata']['cause']}` ({context['category']})"
    assert policy.partition(" ")[0] == ("counts" if seen.delay is None else "relaunches")
    assert (seen.delay or 0) == pytest.approx(read_number(policy), rel=0.2)
    assert str(answer) in context["metadata"]["pod_message"]


def test_the_table_knows_all_answers():
    assert {answer_of(answer) for example in EXAMPLES for answer in example.answers} == set(Answer)
    assert {answer_of(answer) for answer in FAILING} == {Answer.TRANSIENT}
    assert set(COURSES) == set(Answer)
