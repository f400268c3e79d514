# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The schedulers of this deployment, as the metadata database knows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.configuration import conf
from airflow.jobs.job import Job, JobState
from sqlalchemy import select
from sqlalchemy.orm import Session


def read_living(*, but: int | None, session: Session) -> set[int]:
    """
    Return the jobs of the schedulers that are alive.

    Alive is whose heartbeat is not older than ``[scheduler] scheduler_health_check_threshold``, as it is
    for Airflow when it looks for orphaned task instances.

    :param but: the job that asks
    """
    threshold = timedelta(seconds=conf.getint("scheduler", "scheduler_health_check_threshold"))
    query = select(Job.id).where(
        Job.job_type == "SchedulerJob",
        Job.state == JobState.RUNNING,
        Job.latest_heartbeat >= datetime.now(UTC) - threshold,
        Job.id != but,
    )
    return set(session.scalars(query))
