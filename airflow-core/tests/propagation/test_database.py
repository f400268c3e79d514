# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Contexts in the metadata database: each try has the last one, and nobody waits for those of others."""

from __future__ import annotations

import pytest

from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.propagation.database import read_failure, write_failures

LOST, TERMINATED = StateChangeReason.WORKER_LOST, StateChangeReason.WORKER_TERMINATION


def context(reason):
    return ExecutionContext(
        category=StateChangeCategory.INFRASTRUCTURE, reason=reason, source=ContextSource.EXECUTOR
    )


def failures(tis, reason):
    return {ti.key: (str(ti.id), context(reason)) for ti in tis}


@pytest.mark.parametrize("written", [1, 30])
def test_the_last_failure_of_a_try_is_stored(queued_ti, session, written):
    tis = queued_ti(mapped=written)
    for reason in (LOST, TERMINATED):
        write_failures(failures(tis, reason), session=session)
        session.commit()
    stored = [read_failure(ti.key, session=session) for ti in tis]
    assert [(each.ti_id, each.context.reason) for each in stored] == [(str(ti.id), TERMINATED) for ti in tis]


@pytest.mark.parametrize("written", ["first", "again"])
def test_what_another_scheduler_writes_is_not_waited_for(queued_ti, session, impatient_session, written):
    tis = queued_ti(mapped=20)
    if written == "again":
        write_failures(failures(tis, StateChangeReason.UNKNOWN), session=session)
        session.commit()
    write_failures(failures(tis[:10], LOST), session=session)
    write_failures(failures(tis[10:], TERMINATED), session=impatient_session)
    impatient_session.commit()
    session.commit()
    stored = [read_failure(ti.key, session=session) for ti in tis]
    assert [each.context.reason for each in stored] == [LOST] * 10 + [TERMINATED] * 10
