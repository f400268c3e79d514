# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The delay of a fault ends when a pod's annotation says so."""

from __future__ import annotations

import pytest

from cluster_lab.faults import Fault, FaultRule
from cluster_lab.journal import JournalEvent
from cluster_lab.kubelet.pod import GO_ON_ANNOTATION


@pytest.mark.parametrize(
    ("fault", "before", "after"),
    [
        (Fault.EVICTED, JournalEvent.BOUND, JournalEvent.FAULT_INJECTED),
        (Fault.NODE_SHUTDOWN, JournalEvent.BOUND, JournalEvent.FAULT_INJECTED),
        (Fault.IMAGE_PULL_RECOVERS, JournalEvent.FAULT_INJECTED, JournalEvent.STARTED),
        (Fault.FAILED_THEN_CLEANUP, JournalEvent.FAULT_INJECTED, JournalEvent.DELETED),
    ],
)
async def test_a_fault_goes_on_before_its_delay_is_over(start_cluster, fault, before, after):
    async with start_cluster(FaultRule(task_id="load", fault=fault, delay=600)) as cluster:
        name = await cluster.create("load")
        await cluster.until_journaled(name, before)
        assert after not in cluster.journal_events(name)
        await cluster.change(name, {"metadata": {"annotations": {GO_ON_ANNOTATION: "now"}}})
        await cluster.until_journaled(name, after)
