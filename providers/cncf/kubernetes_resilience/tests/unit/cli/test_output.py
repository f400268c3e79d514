# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What people read, in a terminal that is narrower than that."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from airflow.providers.cncf.kubernetes_resilience.cli.output import print_names, print_table

URL = "https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#graceful-node-shutdown"
SENTENCE = "The node was shut down, and the kubelet ended its pods in time, as with most spot machines."


@pytest.fixture
def console():
    return Console(file=StringIO(), width=50)


def test_a_word_is_in_one_piece_and_a_sentence_is_not(console):
    print_names(console, [("because", SENTENCE), ("nothing", None), ("see", URL)])
    *sentence, address = console.file.getvalue().splitlines()
    assert address == f"  see      {URL}"
    assert all(len(line) <= 50 for line in sentence)
    assert sentence[0].startswith("  because  The node")
    assert {line[:11] for line in sentence[1:]} == {" " * 11}
    assert " ".join(line[11:].strip() for line in sentence) == SENTENCE


def test_nothing_is_left_out_of_a_table(console):
    pod = "sales-load-with-a-name-that-is-long-x7k2m9qa"
    print_table(console, [{"pod": pod, "node": "general-3", "why": f"fatal: unable to access '{URL}'"}])
    text = console.file.getvalue()
    assert "…" not in text
    cells = list(zip(*(line.split("|") for line in text.splitlines()[2:] if "|" in line), strict=True))
    assert "".join(map(str.strip, cells[0])) == pod
    assert re.sub(r"\s", "", "".join(cells[2])).endswith(f"'{URL}'")


def test_what_a_pod_says_is_no_markup(console):
    print_names(console, [("[b]policy[/b]", "[red]x[/red]"), ("message", "[/nothing] was opened")])
    assert "[b]policy[/b]  [red]x[/red]" in console.file.getvalue()
    assert "[/nothing] was opened" in console.file.getvalue()
