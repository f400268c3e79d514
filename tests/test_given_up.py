# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods are given up on while their image cannot be pulled, and start before they are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster_lab.apiserver import RequestInfo
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT

pytestmark = pytest.mark.system

LATE = ("late_1", "late_2", "late_3")
UNTOUCHED = Outcome(state="success", pods=1, launch_failures=1)
"""Its code ran once, in its first pod, and no retry was taken; the ledger has why it was given up on."""


@contextmanager
def given_up(testbed: Testbed, dag_id: str, *, lag: float = 0) -> Iterator[Run]:
    """
    Start a run whose pods are given up on; in the block, all of them have started and none is deleted yet.

    :param lag: seconds by which what happens to them since is seen late
    """

    def deletes(info: RequestInfo) -> bool:
        is_of_run = info.name.startswith(dag_id.replace("_", "-"))
        return is_of_run and (info.verb, info.resource) == ("delete", "pods")

    with testbed.proxy.hold(when=deletes) as held:
        run = testbed.trigger(dag_id)
        held.wait_for(len(LATE), LONGEST_WAIT)
        testbed.proxy.lag(lag)
        testbed.cluster.go_on(*(run.pods(task)[0] for task in LATE))
        run.wait_for_code(*LATE)
        yield run


def test_they_are_followed_again_when_they_are_seen_to_start(testbed: Testbed) -> None:
    with given_up(testbed, "starts_after_all") as run:
        testbed.schedulers.wait_for_turns(5)
    assert testbed.end(run) == dict.fromkeys(LATE, UNTOUCHED)


@pytest.mark.long
def test_their_deletions_find_that_they_have_started(testbed: Testbed) -> None:
    try:
        with given_up(testbed, "starts_unseen", lag=60) as run:
            pass
        testbed.schedulers.wait_for_turns(5)
    finally:
        testbed.proxy.lag(0)
    assert testbed.end(run) == dict.fromkeys(LATE, UNTOUCHED)
