# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Durations in the notation of Go and Kubernetes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.retry_policy.durations import LONGEST_DURATION, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", 86_400),
        ("0s", 0),
        ("30s", 30),
        ("5m", 300),
        ("1m30s", 90),
        ("1h", 3600),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("100ms", 0.1),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("2000ns", 2e-6),
        ("30s1m", 90),
    ],
)
def test_reads_what_go_reads(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "30",
        "-5s",
        "+5s",
        "NaN",
        "NaNs",
        "inf",
        "5 m",
        "5m ",
        "5m\n",
        "1m and 30s",
        "1..5s",
        "s",
        ".s",
        "1d",
        "1w",
        "1mm",
        "1y",
        "5M",
        "٣s",
        "9" * 30 + "h",
        "9" * 400 + "s",
        30,
        1.5,
        None,
        ["5m"],
    ],
)
def test_refuses_everything_else(text: object) -> None:
    with pytest.raises(ValueError, match=r"30s or 1m30s|24h at most"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (10, "10s"), (90, "1m30s"), (300, "5m"), (3600, "1h"), (3661.5, "1h1m1.5s")],
)
def test_writes_as_people_do(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("text", ["24h1us", "1441m", "99999999h", "86400.001s"])
def test_refuses_more_than_a_day(text: str) -> None:
    with pytest.raises(ValueError, match=f"^got '{text}'; a duration is 24h at most$"):
        parse_duration(text)


@given(milliseconds=st.integers(min_value=0, max_value=86_400_000))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@given(text=st.text(alphabet="0123456789.hmsnuµd+- "))
def test_any_text_is_a_time_to_wait_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 0 <= seconds <= LONGEST_DURATION
